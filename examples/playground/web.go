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
	"github.com/hybridlimit/hybridlimit/adapter"
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
	mux.HandleFunc("POST /api/cards/{card}/send", p.ofCard(p.sendRequests))
	mux.HandleFunc("POST /api/cards/{card}/reset", p.ofCard(func(c *card, _ *http.Request) (any, error) { return done, c.reset() }))
	mux.HandleFunc("PUT /api/cards/{card}/limit", p.ofCard(func(c *card, r *http.Request) (any, error) {
		return done, with(r, c.setLimit)
	}))
	mux.HandleFunc("POST /api/reset", order(func(*http.Request) (all error) {
		for _, c := range p.cards {
			all = errors.Join(all, c.reset())
		}
		return all
	}))
	mux.HandleFunc("POST /api/boundary", order(func(*http.Request) error { return p.boundary.attack() }))
	mux.HandleFunc("PATCH /api/fleet/settings", order(p.changeSettings))
	mux.HandleFunc("POST /api/fleet/redis", order(func(r *http.Request) error { return with(r, p.fleet.inflict) }))
	mux.HandleFunc("POST /api/fleet/recount", order(func(*http.Request) error {
		return p.fleet.do(func() error { p.fleet.countAnew(time.Now()); return nil })
	}))
	mux.HandleFunc("POST /api/fleet/flights/recount", order(func(*http.Request) error {
		return p.fleet.do(func() error { p.fleet.inFlight.countAnew(); return nil })
	}))
	mux.HandleFunc("POST /api/fleet/processes/{number}", ofProcess(p.fleet, func(number int, q intervention) error {
		return p.fleet.intervene(number, q.Action)
	}))
	mux.HandleFunc("POST /api/fleet/processes/{number}/calls", ofProcess(p.fleet, func(number int, q requests) error {
		return p.fleet.callNow(number, q.N)
	}))
	mux.HandleFunc("GET /api/fleet/stats", answers(func(*http.Request) (any, error) {
		var s libraryStats
		err := p.fleet.do(func() error { s = p.fleet.stats(); return nil })
		return s, err
	}))
	return secured(p.guarded(host, mux))
}

// The orders that have one or two fields.
type (
	intervention struct {
		Action string `json:"action"`
	}
	requests struct {
		N int `json:"n"`
	}
	classRequests struct {
		N     int    `json:"n"`
		Class string `json:"class"`
	}
)

// card returns the card that the path names.
func (p *playground) card(r *http.Request) (*card, error) {
	for _, c := range p.cards {
		if c.id == r.PathValue("card") {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%w: no card %q", errNotFound, r.PathValue("card"))
}

// ofCard returns a handler that replies with the result of do for the card of the path.
func (p *playground) ofCard(do func(*card, *http.Request) (any, error)) http.HandlerFunc {
	return answers(func(r *http.Request) (any, error) {
		c, err := p.card(r)
		if err != nil {
			return nil, err
		}
		return do(c, r)
	})
}

// try answers a request to the service of a card. A request without a class, on a card with classes, is not critical.
func (p *playground) try(w http.ResponseWriter, r *http.Request) {
	c, err := p.card(r)
	if name := r.PathValue("class"); err == nil && name != "" && c.class(name) == nil {
		err = fmt.Errorf("%w: no class %q of card %q", errNotFound, name, c.id)
	}
	if err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	c.serve.ServeHTTP(w, r)
}

func (p *playground) sendRequests(c *card, r *http.Request) (v any, err error) {
	err = with(r, func(q classRequests) error {
		var bad adapter.Violations
		bad.AddIf(q.N < 1 || q.N > 100, "n", q.N, "must be 1 to 100")
		c.checkClass(q.Class, &bad)
		if err := bad.Err("playground"); err != nil {
			return err
		}
		v = map[string]any{"answers": c.send(q.Class, q.N)}
		return nil
	})
	return v, err
}

// changeSettings changes only the fields that are sent. So two pages that change different fields at once both succeed.
func (p *playground) changeSettings(r *http.Request) error {
	body, err := content(r)
	if err != nil {
		return err
	}
	return p.fleet.do(func() error {
		to := p.fleet.settings
		if err := decode(body, &to); err != nil {
			return err
		}
		return p.fleet.set(to)
	})
}

// ofProcess returns a handler that reads an order and executes it for the process that the path names.
func ofProcess[Q any](f *fleet, do func(number int, q Q) error) http.HandlerFunc {
	return order(func(r *http.Request) error {
		number, err := strconv.Atoi(r.PathValue("number"))
		if err != nil {
			return fmt.Errorf("%w: %q is not a process", errNotFound, r.PathValue("number"))
		}
		return with(r, func(q Q) error { return f.do(func() error { return do(number, q) }) })
	})
}
