package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/hybridlimit/hybridlimit"
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
		cfg:     cfg,
		limits:  make([]*limit, len(limits)),
		readers: make([]gate.Reader[*http.Request], len(limits)),
		gate: gate.New(gate.HTTP, shared, cfg.Shedder, cfg.Failure == FailOpen, gate.NewLog(cfg.Logger, gate.Names{
			Package: "httplimit",
			Request: "request",
			Bad:     "400",
			Refused: "503",
		})),
	}
	for at, i := range gate.Order(shared) {
		g.limits[at], g.readers[at] = newLimit(i, limits[i], &shared[i])
	}
	return func(next http.Handler) http.Handler {
		g.gate.Stands()
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// middleware is the state of one middleware.
type middleware struct {
	cfg     Config
	limits  []*limit                     // in the order in which they are asked
	readers []gate.Reader[*http.Request] // of limits, by index
	gate    *gate.Gate
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
	parts, err := gate.PartsOf(r.Context(), r, g.readers, g.cfg.Class != nil, class, around, room[:0], ErrNoLimit)
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

// NoKey is the answer to a request without a key. A request has no key if every Limit.Key returns "" (ErrNoLimit), or
// if the Key of a Required limit does (ErrNoKey). NoKey is NoKeyDeny, NoKeyPass, or a status of 400 to 599:
//
//	httplimit.Config{NoKey: http.StatusUnauthorized}
type NoKey int

// The answers other than a status.
const (
	// NoKeyDeny answers 429, without Retry-After. It is the zero value because a client can often leave out its key; if
	// such a request were admitted, the client would have no limit. The status is not a 5xx, because the server works
	// and any client can cause this answer.
	NoKeyDeny NoKey = 0
	// NoKeyPass passes the request without a limit, to the Shedder if there is one and to the handler. It is for keys
	// that a client cannot leave out. It contradicts a Required limit, so New returns an error for both.
	NoKeyPass NoKey = 1
)

// String returns "deny", "pass" or the status.
func (k NoKey) String() string {
	switch k {
	case NoKeyDeny:
		return "deny"
	case NoKeyPass:
		return "pass"
	}
	return strconv.Itoa(int(k))
}

// valid reports whether k is NoKeyDeny, NoKeyPass, or a status of 400 to 599.
func (k NoKey) valid() bool {
	return k == NoKeyDeny || k == NoKeyPass || k >= 400 && k <= 599
}

// status returns the status of an answer other than NoKeyPass.
func (k NoKey) status() int {
	if k == NoKeyDeny {
		return http.StatusTooManyRequests
	}
	return int(k)
}

// The failures of requests for which no limiter was asked.
var (
	// ErrNoLimit is the failure of a request to which no limit applies: every Key returned "", and Skip did not exempt
	// the request.
	ErrNoLimit = errors.New("httplimit: no limit applies to the request")
	// ErrNoKey is the failure of a request if the Key of a Required limit returned "".
	ErrNoKey = errors.New("httplimit: a required limit has no key for the request")
)

// withoutKey answers a request without a key according to Config.NoKey.
func (g *middleware) withoutKey(w http.ResponseWriter, r *http.Request, class string, around *gate.Mark, next http.Handler, err error) {
	g.logNoKey(r, err)
	if g.cfg.NoKey == NoKeyPass {
		if g.cfg.Shedder != nil && !around.Placed(g.cfg.Shedder) {
			permit, ok := g.place(w, r, class, nil)
			if !ok {
				return
			}
			defer permit.Release()
		}
		g.pass(w, r, next, nil)
		return
	}
	g.refuse(w, r, g.cfg.NoKey.status(), err)
}

// logNoKey logs a request without a key. With NoKeyPass the level is Debug, because the Config asks for such requests
// to be admitted.
func (g *middleware) logNoKey(r *http.Request, err error) {
	level := slog.LevelWarn
	if g.cfg.NoKey == NoKeyPass {
		level = slog.LevelDebug
	}
	route := r.Pattern
	if route == "" {
		route = r.URL.Path
	}
	g.gate.Log.NoKey(r.Context(), level, "err", err,
		"method", gate.Shortened(r.Method), "route", gate.Shortened(route), "answer", g.cfg.NoKey.String(),
		"remedy", "exempt the request in Config.Skip, return a key for it in Limit.Key (Pattern(nil) has one only inside a ServeMux), or set Config.NoKey")
}

// limit is a Limit of a middleware.
type limit struct {
	items  *gate.Items
	bucket string
}

// newLimit returns the limit for limits[i], which is l, and what reads requests for it. shared is its part that does
// not depend on HTTP.
func newLimit(i int, l Limit, shared *gate.Limit) (*limit, gate.Reader[*http.Request]) {
	made := &limit{items: gate.NewItems(shared), bucket: l.Bucket}
	reads := gate.Reader[*http.Request]{Limit: shared}
	reads.Key = func(_ context.Context, r *http.Request) string { return l.Key(r) }
	if l.Cost != nil {
		reads.Cost = func(_ context.Context, r *http.Request) int64 { return l.Cost(r) }
	}
	if l.Of != nil {
		reads.Of = func(_ context.Context, r *http.Request) (hybridlimit.Limit, bool) { return l.Of(r) }
	}
	if l.Required {
		reads.NoKey = shared.Missing(i, ErrNoKey)
	}
	return made, reads
}
