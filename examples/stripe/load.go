package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// patience is the time after which a client leaves.
const patience = 1500 * time.Millisecond

// source is a part of the load: requests that are sent at fixed times, by some users in turn.
type source struct {
	name   string // of its row in the table
	route  string
	users  string        // prefix of the users' names
	number int           // of the users
	every  time.Duration // time between two sendings
	at     int           // requests that are sent at once
}

// phase is a part of the run.
type phase struct {
	name    string
	slow    bool // the dependency is slow
	sources []source
}

// The load of a normal day: 20 users, each with five listings a second, and a payment now and then.
var (
	payments = source{"payments", payment, "user", 20, time.Second / 10, 1}
	listings = source{"listings", listing, "user", 20, time.Second / 100, 1}
)

// phases show one limiter each.
var phases = []phase{
	{
		name: "(a) One greedy user sends 1000 listings/s, beside 100 listings/s and 10 payments/s of 20 others.",
		sources: []source{
			payments, listings,
			{"listings, greedy user", listing, "greedy", 1, time.Second / 1000, 1},
		},
	},
	{
		name: "(b) A flood: 1000 listings/s of 100 users, each within its limit, beside payments, also 15 at once.",
		sources: []source{
			payments,
			{"payments at once", payment, "buyer", 15, time.Second, 15},
			{"listings, flood", listing, "reader", 100, time.Second / 1000, 1},
		},
	},
	{
		name: "(c) Eight users send 10 reports/s each, within their rate limit. A report takes 1.3s. The load is normal.",
		sources: []source{
			payments, listings,
			{"reports", report, "analyst", 8, time.Second / 80, 1},
		},
	},
	{
		name: fmt.Sprintf("(d) Each call of the dependency takes %v instead of %v. The load is normal.", slow, normal),
		slow: true, sources: []source{payments, listings},
	},
}

// tally is a row of the table: the number of requests by their end.
type tally struct {
	sent, served int
	denied, shed int // 429, 503
	timedOut     int // 504: the client left while the request waited for the dependency, or was in it
	other        int // any other status
}

// subject is a service under the load.
type subject struct {
	handler http.Handler
	on      *dependency
}

// run plays a phase for some time on all subjects at once, and returns a row for each of its sources, by subject.
func (p phase) run(ctx context.Context, subjects []subject, lasts time.Duration) [][]tally {
	rows := make([][]tally, len(subjects))
	var all sync.WaitGroup
	var mu sync.Mutex // of the rows
	for i, s := range subjects {
		s.on.slow.Store(p.slow)
		rows[i] = make([]tally, len(p.sources))
	}
	begin := time.Now()
	for j, src := range p.sources {
		all.Go(func() {
			n := 0
			for at := time.Duration(0); at < lasts && ctx.Err() == nil; at += src.every {
				time.Sleep(time.Until(begin.Add(at)))
				for range src.at {
					user := fmt.Sprint(src.users, n%src.number)
					n++
					for i, s := range subjects {
						all.Go(func() {
							status := send(ctx, s.handler, src.route, user)
							mu.Lock()
							defer mu.Unlock()
							rows[i][j].count(status)
						})
					}
				}
			}
		})
	}
	all.Wait()
	return rows
}

// count counts a request.
func (t *tally) count(status int) {
	t.sent++
	switch status {
	case http.StatusOK:
		t.served++
	case http.StatusTooManyRequests:
		t.denied++
	case http.StatusServiceUnavailable:
		t.shed++
	case http.StatusGatewayTimeout:
		t.timedOut++
	default:
		t.other++
	}
}

// send sends a request of a user, and returns the status of the response. The client leaves after its patience.
func send(ctx context.Context, h http.Handler, route, user string) int {
	ctx, leave := context.WithTimeout(ctx, patience)
	defer leave()
	method, path, _ := strings.Cut(route, " ")
	r, err := http.NewRequestWithContext(ctx, method, path, http.NoBody)
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+user)
	a := answer{header: http.Header{}, status: http.StatusOK}
	h.ServeHTTP(&a, r)
	return a.status
}

// answer is a response without its body.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return len(b), nil }
