package httplimit

import (
	"net/http"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// New returns a middleware that applies all limits to each request, and then asks Config.Shedder. Its error
// (ErrInvalid) lists everything wrong with the arguments.
//
// A request that meets the same limit twice in a chain of handlers counts once: with its largest cost. Limits are the
// same if they have the same Limiter, name and key, and the request the same class and the same limit of Limit.Of. The
// request is known by its context, so requests that a handler makes from it for other handlers count as that one.
// Middleware that replaces the context makes a request count twice. A handler gets a copy of the request (WithContext)
// if a limiter or the Shedder stands in two or more places; a middleware has one place for each handler that it wraps.
// Middleware around it then does not see what the handler sets in the request, such as Request.Pattern.
//
// The handlers are safe for concurrent use and start no goroutines. docs/http.md has the time that a limit adds to a
// request.
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
		gate: gate.New(gate.HTTP, shared, cfg.Shedder, cfg.Failure == FailOpen, gate.NewLog(cfg.Logger, gate.Names{
			Package: "httplimit",
			Request: "request",
			Bad:     "400",
			Refused: "503",
		})),
	}
	for at, i := range gate.Order(shared) {
		g.limits[at] = newLimit(i, limits[i], shared[i])
	}
	return func(next http.Handler) http.Handler {
		g.gate.Stands()
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// middleware is the state of one middleware.
type middleware struct {
	cfg    Config
	limits []*limit // in the order in which they are asked
	gate   *gate.Gate
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
	around := g.gate.Around(r.Context())
	parts, err := g.partsOf(r, class, around, room[:0])
	if err != nil {
		g.withoutKey(w, r, class, around, next, err)
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
	if g.cfg.Shedder != nil && !around.Placed(g.cfg.Shedder) {
		permit, ok := g.place(w, r, class, parts)
		if !ok {
			return
		}
		defer permit.Release()
	}
	g.publish(w.Header(), parts)
	g.pass(w, r, next, parts)
	ended = true
}

// pass calls the next handler. Middleware inside it finds what was counted.
func (g *middleware) pass(w http.ResponseWriter, r *http.Request, next http.Handler, parts []gate.Part) {
	if g.gate.Often() {
		ctx, _ := g.gate.Within(r.Context(), parts)
		r = r.WithContext(ctx)
	}
	next.ServeHTTP(w, r)
}

// partsOf appends a part for each limit that applies to the request and has a cost other than 0, less the units for
// which middleware around counted it. It returns ErrNoLimit or ErrNoKey if a key is missing.
func (g *middleware) partsOf(r *http.Request, class string, around *gate.Mark, parts []gate.Part) ([]gate.Part, error) {
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
		if !around.Rest(&p) {
			continue
		}
		parts = append(parts, p)
	}
	if !applied && len(g.limits) > 0 {
		return parts, ErrNoLimit
	}
	return parts, nil
}
