// Httpcost measures the time that a rate limit adds to an HTTP handler. It compares ServeHTTP of the bare
// handler with the same handler behind httplimit: with one hybrid limiter, and with two that are asked together.
// Short rounds take turns in a random order, with a reused ResponseWriter.
//
//	cd bench && go run ./httpcost
//
// It prints the medians of the rounds and the allocations. docs/http.md states that a limit adds less than a
// microsecond. So the exit status is 1 if the median of the differences between paired rounds is a microsecond or more.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

const most = time.Microsecond

func main() {
	rounds := flag.Int("rounds", 400, "rounds of each")
	calls := flag.Int("calls", 2000, "requests in a round")
	flag.Parse()
	added, err := measure(os.Stdout, *rounds, *calls)
	if err != nil {
		fmt.Fprintln(os.Stderr, "httpcost:", err)
		os.Exit(1)
	}
	if added >= most {
		fmt.Printf("\nFAIL: the limit is %v\n", most)
		os.Exit(1)
	}
}

// writer is a ResponseWriter that is reused, so that the figures exclude the work of net/http per connection.
type writer struct{ h http.Header }

func (w *writer) Header() http.Header         { return w.h }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }
func (w *writer) WriteHeader(int)             {}

// subject is a handler whose rounds are measured.
type subject struct {
	name   string
	h      http.Handler
	rounds []time.Duration // mean time of a request, for each round
	allocs float64
}

func measure(out io.Writer, rounds, calls int) (added time.Duration, err error) {
	server, err := miniredis.Run()
	if err != nil {
		return 0, err
	}
	defer server.Close()
	server.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	defer hub.Close()
	all, err := hub.Limiter(hybridlimit.PerSecond(1_000_000_000), hybrid.Config{Name: "all"})
	if err != nil {
		return 0, err
	}
	limiters := []*hybrid.Limiter{all}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	behind := func(cfg httplimit.Config, key httplimit.KeyFunc, more ...httplimit.Limit) http.Handler {
		// One limiter for each subject: a middleware marks the requests of a limiter that stands in several places.
		limiter, e := hub.Limiter(hybridlimit.PerSecond(1_000_000_000), hybrid.Config{Name: fmt.Sprint("api", len(limiters))})
		if e != nil {
			err = e
			return handler
		}
		limiters = append(limiters, limiter)
		mw, e := httplimit.New(cfg, append(more, httplimit.Limit{Limiter: limiter, Key: key})...)
		if e != nil {
			err = e
			return handler
		}
		return mw(handler)
	}
	subjects := []*subject{
		{name: "bare handler", h: handler},
		{name: "limited by address", h: behind(httplimit.Config{}, httplimit.PeerIP())},
		{name: "limited by API key (SHA-256)", h: behind(httplimit.Config{}, httplimit.APIKey("X-Api-Key", ""))},
		{name: "by address, fields hidden", h: behind(httplimit.Config{Hide: true}, httplimit.PeerIP())},
		{name: "by address, with X-RateLimit", h: behind(httplimit.Config{XRateLimit: true}, httplimit.PeerIP())},
		{name: "by address, and all together", h: behind(httplimit.Config{}, httplimit.PeerIP(), httplimit.Limit{Limiter: all, Key: httplimit.Everyone()})},
	}
	if err != nil {
		return 0, err
	}
	ready, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := hub.Ready(ready); err != nil {
		return 0, err
	}
	r, err := http.NewRequest(http.MethodGet, "http://api.test/", nil)
	if err != nil {
		return 0, err
	}
	r.RemoteAddr = "192.0.2.1:4711"
	r.Header.Set("X-Api-Key", "0123456789abcdef0123456789abcdef")
	w := &writer{h: http.Header{}}
	round := func(s *subject) time.Duration {
		start := time.Now()
		for range calls {
			clear(w.h)
			s.h.ServeHTTP(w, r)
		}
		return time.Since(start) / time.Duration(calls)
	}
	for _, s := range subjects { // warm-up: leases, memory, the processor's tables
		for range 20 {
			round(s)
		}
		s.allocs = allocations(func() { round(s) }) / float64(calls)
		s.rounds = make([]time.Duration, 0, rounds)
	}
	for range rounds {
		order := rand.Perm(len(subjects))
		for _, i := range order {
			subjects[i].rounds = append(subjects[i].rounds, round(subjects[i]))
		}
	}
	for _, limiter := range limiters {
		if st := limiter.Stats(); len(st.Denied) > 0 {
			return 0, fmt.Errorf("requests were denied (%v), so the figures are not those of admitted requests", st.Denied)
		}
	}
	fmt.Fprintf(out, "%s %s/%s, %d rounds of %d requests each\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, rounds, calls)
	fmt.Fprintf(out, "%-30s %10s %10s %8s\n", "", "median", "added", "allocs")
	for _, s := range subjects {
		diffs := make([]time.Duration, rounds)
		for i := range diffs {
			diffs[i] = s.rounds[i] - subjects[0].rounds[i]
		}
		d := median(diffs)
		if s == subjects[1] {
			added = d
		}
		fmt.Fprintf(out, "%-30s %10v %10v %8.2f\n", s.name, median(s.rounds), d, s.allocs)
	}
	return added, nil
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// allocations returns the allocations of a call: the minimum of several, without those of the limiter's own goroutines.
func allocations(call func()) float64 {
	var before, after runtime.MemStats
	least := float64(0)
	for i := range 5 {
		runtime.ReadMemStats(&before)
		call()
		runtime.ReadMemStats(&after)
		if n := float64(after.Mallocs - before.Mallocs); i == 0 || n < least {
			least = n
		}
	}
	return least
}
