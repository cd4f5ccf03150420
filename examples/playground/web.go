package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

//go:embed web
var web embed.FS

// playground is the state that all pages share.
type playground struct {
	feed     *feed
	fleet    *fleet
	cards    []*card
	pushes   []*soon // of cards
	boundary *boundary
	patience time.Duration
}

func newPlayground(s *store) (*playground, error) {
	p := &playground{feed: newFeed(), patience: patience}
	p.boundary = newBoundary(func(b boundaryState) { p.feed.send("boundary", b) })
	for _, c := range []struct {
		id, title string
		limit     hybridlimit.Limit
		classes   []hybridlimit.Class
	}{
		{"token-bucket", "Token bucket", hybridlimit.TokenBucket(2, time.Second, 10), nil},
		{"leaky-bucket", "Leaky bucket, policing", hybridlimit.LeakyBucket(2, time.Second, 10), nil},
		{"leaky-queue", "Leaky bucket, shaping", hybridlimit.LeakyQueue(2, time.Second, 8), nil},
		{"fixed-window", "Fixed window", hybridlimit.FixedWindow(10, 5*time.Second), nil},
		{"sliding-window", "Sliding window", hybridlimit.SlidingWindow(10, 5*time.Second), nil},
		{"sliding-log", "Sliding log", hybridlimit.SlidingLog(10, 5*time.Second), nil},
		// The refill is slow, so that a visitor has time to try both classes.
		{"classes", "Token bucket with classes", hybridlimit.TokenBucket(1, 2*time.Second, 10), []hybridlimit.Class{{Name: "batch", Floor: 0.2}}},
	} {
		push := &soon{every: pushEvery}
		made, err := newCard(c.id, c.title, c.limit, push.ask, c.classes...)
		if err != nil {
			return nil, err
		}
		push.do = func() { p.feed.send("card", made.state()) }
		p.cards, p.pushes = append(p.cards, made), append(p.pushes, push)
	}
	var err error
	p.fleet, err = newFleet(s, p.feed.send, p.feed.watched)
	return p, err
}

func (p *playground) close() {
	p.feed.close()
	for _, push := range p.pushes {
		push.end()
	}
	p.boundary.close()
	p.fleet.close()
}

// hello is the initial data of a page.
type hello struct {
	Cards    []cardState   `json:"cards"`
	Boundary boundaryState `json:"boundary"`
	Fleet    history       `json:"fleet"`
	Now      int64         `json:"now"` // Unix ms
}

func (p *playground) everything() any {
	h := hello{Boundary: p.boundary.look(), Fleet: p.fleet.history(), Now: time.Now().UnixMilli()}
	for _, c := range p.cards {
		h.Cards = append(h.Cards, c.state())
	}
	return h
}

// handler serves the page and executes its orders, after the checks of guarded. host is the host of -addr.
func (p *playground) handler(host string) http.Handler {
	files, err := fs.Sub(web, "web")
	if err != nil { // cannot happen: it is embedded
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /feed", func(w http.ResponseWriter, r *http.Request) { p.feed.serve(w, r, p.everything) })
	mux.HandleFunc("GET /try/{card}", p.try)
	mux.HandleFunc("GET /try/{card}/{class}", p.try)
	mux.HandleFunc("POST /api/cards/{card}/send", p.sendRequests)
	mux.HandleFunc("POST /api/cards/{card}/reset", func(w http.ResponseWriter, r *http.Request) {
		if c := p.card(w, r); c != nil {
			reply(w, struct{}{}, c.reset())
		}
	})
	mux.HandleFunc("PUT /api/cards/{card}/limit", p.setCardLimit)
	mux.HandleFunc("POST /api/reset", func(w http.ResponseWriter, _ *http.Request) {
		var all error
		for _, c := range p.cards {
			all = errors.Join(all, c.reset())
		}
		reply(w, struct{}{}, all)
	})
	mux.HandleFunc("POST /api/boundary", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, struct{}{}, p.boundary.attack())
	})
	mux.HandleFunc("PATCH /api/fleet/settings", p.changeSettings)
	mux.HandleFunc("POST /api/fleet/redis", order(p.fleet.inflict))
	mux.HandleFunc("POST /api/fleet/recount", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, struct{}{}, p.fleet.do(func() error { p.fleet.countAnew(time.Now()); return nil }))
	})
	mux.HandleFunc("POST /api/fleet/flights/recount", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, struct{}{}, p.fleet.do(func() error { p.fleet.inFlight.countAnew(); return nil }))
	})
	mux.HandleFunc("POST /api/fleet/processes/{number}", p.intervene)
	mux.HandleFunc("POST /api/fleet/processes/{number}/calls", p.callNow)
	mux.HandleFunc("GET /api/fleet/stats", func(w http.ResponseWriter, _ *http.Request) {
		var s libraryStats
		err := p.fleet.do(func() error { s = p.fleet.stats(); return nil })
		reply(w, s, err)
	})
	return secured(p.guarded(host, mux))
}

// card returns the card that the path names. If there is none, it answers the request and returns nil.
func (p *playground) card(w http.ResponseWriter, r *http.Request) *card {
	for _, c := range p.cards {
		if c.id == r.PathValue("card") {
			return c
		}
	}
	refuse(w, http.StatusNotFound, fmt.Errorf("playground: no card %q", r.PathValue("card")))
	return nil
}

// try answers a request to the service of a card. A request without a class, on a card with classes, is not critical.
func (p *playground) try(w http.ResponseWriter, r *http.Request) {
	c := p.card(w, r)
	if c == nil {
		return
	}
	if name := r.PathValue("class"); name != "" && c.class(name) == nil {
		refuse(w, http.StatusNotFound, fmt.Errorf("playground: no class %q of card %q", name, c.id))
		return
	}
	c.serve(w, r)
}

func (p *playground) sendRequests(w http.ResponseWriter, r *http.Request) {
	c := p.card(w, r)
	if c == nil {
		return
	}
	var q struct {
		N     int    `json:"n"`
		Class string `json:"class"`
	}
	if !read(w, r, &q) {
		return
	}
	var bad hybridlimit.Violations
	if q.N < 1 || q.N > 100 {
		bad.Add("n", q.N, "must be 1 to 100")
	}
	c.checkClass(q.Class, &bad)
	if err := bad.Err("playground"); err != nil {
		reply(w, nil, err)
		return
	}
	reply(w, map[string]any{"answers": c.send(q.Class, q.N)}, nil)
}

func (p *playground) setCardLimit(w http.ResponseWriter, r *http.Request) {
	c := p.card(w, r)
	if c == nil {
		return
	}
	var q cardOrder
	if read(w, r, &q) {
		reply(w, struct{}{}, c.setLimit(q))
	}
}

// changeSettings changes only the fields that are sent. So two pages that change different fields at once both succeed.
func (p *playground) changeSettings(w http.ResponseWriter, r *http.Request) {
	body, err := content(w, r)
	if err == nil {
		err = p.fleet.do(func() error {
			to := p.fleet.settings
			if err := decode(body, &to); err != nil {
				return err
			}
			return p.fleet.set(to)
		})
	}
	reply(w, struct{}{}, err)
}

func (p *playground) intervene(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Action string `json:"action"`
	}
	if number, ok := processOf(w, r); ok && read(w, r, &q) {
		reply(w, struct{}{}, p.fleet.do(func() error { return p.fleet.intervene(number, q.Action) }))
	}
}

func (p *playground) callNow(w http.ResponseWriter, r *http.Request) {
	var q struct {
		N int `json:"n"`
	}
	if number, ok := processOf(w, r); ok && read(w, r, &q) {
		reply(w, struct{}{}, p.fleet.do(func() error { return p.fleet.callNow(number, q.N) }))
	}
}

// processOf returns the number of the process that the path names. If it is no number, processOf answers the request
// and returns false.
func processOf(w http.ResponseWriter, r *http.Request) (number int, ok bool) {
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil {
		refuse(w, http.StatusNotFound, fmt.Errorf("playground: %q is not a process", r.PathValue("number")))
		return 0, false
	}
	return number, true
}
