package main

import (
	"embed"
	"encoding/json"
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

// playground is all there is to play with. Its pages share it.
type playground struct {
	feed     *feed
	fleet    *fleet
	cards    []*card
	boundary *boundary
}

func newPlayground(s *store) (*playground, error) {
	p := &playground{feed: newFeed()}
	p.boundary = newBoundary(func(b boundaryState) { p.feed.send("boundary", b) })
	for _, c := range []struct {
		id, title string
		limit     hybridlimit.Limit
	}{
		{"token-bucket", "Token bucket", hybridlimit.TokenBucket(2, time.Second, 10)},
		{"leaky-bucket", "Leaky bucket, policing", hybridlimit.LeakyBucket(2, time.Second, 10)},
		{"leaky-queue", "Leaky bucket, shaping", hybridlimit.LeakyQueue(2, time.Second, 8)},
		{"fixed-window", "Fixed window", hybridlimit.FixedWindow(10, 5*time.Second)},
		{"sliding-window", "Sliding window", hybridlimit.SlidingWindow(10, 5*time.Second)},
		{"sliding-log", "Sliding log", hybridlimit.SlidingLog(10, 5*time.Second)},
	} {
		made, err := newCard(c.id, c.title, c.limit, func(s cardState) { p.feed.send("card", s) })
		if err != nil {
			return nil, err
		}
		p.cards = append(p.cards, made)
	}
	var err error
	p.fleet, err = newFleet(s, p.feed.send, p.feed.watched)
	return p, err
}

func (p *playground) close() {
	p.feed.close()
	p.boundary.close()
	p.fleet.close()
}

// hello is all that a page needs to begin with.
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

// handler serves the page and takes its orders. Orders of other sites' pages
// are refused.
func (p *playground) handler() http.Handler {
	files, err := fs.Sub(web, "web")
	if err != nil { // embedded above
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /feed", func(w http.ResponseWriter, r *http.Request) { p.feed.serve(w, r, p.everything) })
	mux.HandleFunc("GET /try/{card}", func(w http.ResponseWriter, r *http.Request) {
		if c := p.card(w, r); c != nil {
			c.serve(w, r)
		}
	})
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
	mux.HandleFunc("PUT /api/fleet/settings", order(func(q settings) error {
		return p.fleet.do(func() error { return p.fleet.set(q) })
	}))
	mux.HandleFunc("POST /api/fleet/redis", order(p.fleet.inflict))
	mux.HandleFunc("POST /api/fleet/recount", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, struct{}{}, p.fleet.do(func() error { p.fleet.countAnew(time.Now()); return nil }))
	})
	mux.HandleFunc("POST /api/fleet/processes/{number}", p.intervene)
	mux.HandleFunc("GET /api/fleet/stats", func(w http.ResponseWriter, _ *http.Request) {
		var s libraryStats
		err := p.fleet.do(func() error { s = p.fleet.stats(); return nil })
		reply(w, s, err)
	})
	return http.NewCrossOriginProtection().Handler(secured(mux))
}

// secured allows the page nothing but its own files.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// card is the one that the path names; nil: there is none, and the response
// says so.
func (p *playground) card(w http.ResponseWriter, r *http.Request) *card {
	for _, c := range p.cards {
		if c.id == r.PathValue("card") {
			return c
		}
	}
	refuse(w, http.StatusNotFound, fmt.Errorf("playground: there is no card %q", r.PathValue("card")))
	return nil
}

func (p *playground) sendRequests(w http.ResponseWriter, r *http.Request) {
	c := p.card(w, r)
	if c == nil {
		return
	}
	var q struct {
		N int `json:"n"`
	}
	if !read(w, r, &q) {
		return
	}
	if q.N < 1 || q.N > 100 {
		var bad hybridlimit.Violations
		bad.Add("n", q.N, "must be 1 to 100")
		refuse(w, http.StatusBadRequest, bad.Err("playground"))
		return
	}
	reply(w, map[string]any{"answers": c.send(q.N)}, nil)
}

func (p *playground) setCardLimit(w http.ResponseWriter, r *http.Request) {
	c := p.card(w, r)
	if c == nil {
		return
	}
	var q struct {
		Rate     int64 `json:"rate"`
		PeriodMs int64 `json:"period_ms"`
		Burst    int64 `json:"burst"`
	}
	if !read(w, r, &q) {
		return
	}
	// Far below what overflows; cardLimit has the message.
	period := time.Duration(max(-1, min(q.PeriodMs, 1<<40))) * time.Millisecond
	reply(w, struct{}{}, c.setLimit(q.Rate, period, q.Burst))
}

func (p *playground) intervene(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil {
		refuse(w, http.StatusNotFound, fmt.Errorf("playground: %q is no process", r.PathValue("number")))
		return
	}
	var q struct {
		Action string `json:"action"`
	}
	if !read(w, r, &q) {
		return
	}
	reply(w, struct{}{}, p.fleet.do(func() error { return p.fleet.intervene(number, q.Action) }))
}

// order is a handler that reads what is asked for, and has it done.
func order[Q any](do func(Q) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if read(w, r, &q) {
			reply(w, struct{}{}, do(q))
		}
	}
}

// maxBody is far more than any order takes, in bytes.
const maxBody = 4 << 10

// read reads an order. One with fields that nobody knows is refused.
func read(w http.ResponseWriter, r *http.Request, q any) bool {
	from := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	from.DisallowUnknownFields()
	if err := from.Decode(q); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("playground: the request cannot be read: %w", err))
		return false
	}
	return true
}

func reply(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, hybridlimit.ErrInvalid):
		refuse(w, http.StatusBadRequest, err)
	case errors.Is(err, errEnded):
		refuse(w, http.StatusServiceUnavailable, err)
	case err != nil:
		refuse(w, http.StatusConflict, err)
	default:
		write(w, http.StatusOK, v)
	}
}

func refuse(w http.ResponseWriter, status int, err error) {
	write(w, status, map[string]string{"error": err.Error()})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // who does not read it has gone
}
