package httplimit

import (
	"net/http"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// New returns a middleware that applies all limits to each request, and then asks
// Config.Shedder. Its error
// (ErrInvalid) lists everything wrong with the arguments.
//
// A request that meets the same limit twice, in one middleware or in two of a chain,
// counts once: with its largest cost. Limits are the same if they have the same Limiter,
// name and key, and the request the same class and the same limit of Limit.Of.
//
// The handlers are safe for concurrent use and start no goroutines. docs/http.md
// has the time that a limit adds to a request.
func New(cfg Config, limits ...Limit) (func(http.Handler) http.Handler, error) {
	shared, err := checked(cfg, limits)
	if err != nil {
		return nil, err
	}
	if cfg.Denied == nil {
		cfg.Denied = Problem
	}
	g := &middleware{
		cfg:    cfg,
		limits: make([]*limit, len(limits)),
		gate: gate.New(shared, cfg.Failure == FailOpen, gate.NewLog(cfg.Logger, gate.Names{
			Package: "httplimit",
			Request: "request",
			Bad:     "400",
			Refused: "503",
		})),
	}
	for at, i := range gate.Order(shared) {
		shared[i].Use = gate.UseOf(limits[i].Limiter)
		g.limits[at] = newLimit(i, limits[i], shared[i])
	}
	if cfg.Shedder != nil {
		g.shedder = gate.UseOf(cfg.Shedder)
	}
	return func(next http.Handler) http.Handler {
		g.stands()
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// middleware is the state of one middleware.
type middleware struct {
	cfg    Config
	limits []*limit // in the order in which they are asked
	gate   *gate.Gate

	shedder *gate.Use // nil: no Shedder
}

func (g *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if g.cfg.Skip != nil && g.cfg.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	var class string
	if g.cfg.Class != nil {
		class = g.cfg.Class(r)
	}
	var room [gate.FewParts]gate.Part
	flight := g.flight(w, r)
	parts, err := g.partsOf(r, class, flight, room[:0])
	if err != nil {
		g.withoutKey(w, r, class, flight, next, err)
		return
	}
	answer := g.gate.Ask(r.Context(), parts)
	ended := false
	if g.gate.Holds && answer.Admits { // before anything that can panic
		var end func(panics bool)
		w, end = held(w, gate.Permits(parts))
		defer func() { end(!ended) }()
	}
	switch {
	case answer.Denied >= 0:
		g.deny(w, r, parts, answer.Denied)
		return
	case !answer.Admits:
		g.refuse(w, r, statusOf(answer.Err), answer.Err)
		return
	}
	if err := g.gate.Shape(r.Context(), parts); err != nil {
		g.gate.Log.GaveUp(r.Context(), err, parts)
		g.refuse(w, r, http.StatusServiceUnavailable, err)
		return
	}
	if g.cfg.Shedder != nil && !flight.Placed(g.shedder) {
		permit, ok := g.place(w, r, class, parts)
		if !ok {
			return
		}
		defer permit.Release()
	}
	g.publish(w.Header(), parts)
	g.pass(w, r, next, flight, parts)
	ended = true
}

// partsOf appends a part for each limit that applies to the request and has a cost
// other than 0, less the units for which flight was counted. It returns
// ErrNoLimit or ErrNoKey if a key is missing.
func (g *middleware) partsOf(r *http.Request, class string, flight gate.Flight, parts []gate.Part) ([]gate.Part, error) {
	applied := false
	for i, l := range g.limits {
		key, n := l.key(r), int64(1)
		if key == "" {
			if l.required {
				return parts, l.missing
			}
			continue
		}
		applied = true
		if l.cost != nil {
			if n = l.cost(r); n == 0 {
				continue
			}
		}
		p := gate.Part{Limit: &l.Limit, Index: i, Key: key, N: n}
		if l.of != nil {
			p.Given, p.GivenOK = l.of(r)
		}
		if g.cfg.Class != nil {
			p.View = l.Class(class)
		}
		if !flight.Rest(&p) {
			continue
		}
		parts = append(parts, p)
	}
	if !applied && len(g.limits) > 0 {
		return parts, ErrNoLimit
	}
	return parts, nil
}
