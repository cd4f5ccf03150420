package httplimit

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// New returns a middleware that applies all limits to each request. Its error
// (ErrInvalid) lists everything wrong with the arguments.
//
// The handlers are safe for concurrent use and start no goroutines. docs/http.md
// has the time that a limit adds to a request.
func New(cfg Config, limits ...Limit) (func(http.Handler) http.Handler, error) {
	if err := violations(cfg, limits); err != nil {
		return nil, err
	}
	if cfg.Denied == nil {
		cfg.Denied = Problem
	}
	g := &gate{cfg: cfg, limits: make([]*limit, len(limits)), log: newFailureLog(cfg.Logger)}
	last := len(limits)
	for i, l := range limits {
		g.limits[i] = newLimit(i, l)
		if l.Of != nil {
			last = i
		}
	}
	if last < len(limits) { // asked last
		g.limits = append(slices.Delete(slices.Clone(g.limits), last, last+1), g.limits[last])
		limits = slices.Delete(slices.Clone(limits), last, last+1)
	}
	g.joint = jointOf(limits)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// gate is the state of one middleware.
type gate struct {
	cfg    Config
	limits []*limit
	joint  hybridlimit.Joint // asks all limits without Of together; nil: they are asked in turn
	log    *failureLog
}

// part is one limit applied to one request.
type part struct {
	*limit
	key string
	n   int64
	// given is the limit that came with the request, if it brings one.
	given  hybridlimit.Limit
	brings bool

	res hybridlimit.Result // Source is SourceUnknown if the limiter was not asked or gave no figures
	// unavailable is set if the limiter decided by its fallback and returned
	// ErrUnavailable too.
	unavailable bool
	// passed is set if the limiter failed and FailOpen admits the request.
	passed bool
}

// fewParts is the number of limits up to which a request's parts stay on the
// stack.
const fewParts = 4

func (g *gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if g.cfg.Skip != nil && g.cfg.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	var room [fewParts]part
	parts, err := g.partsOf(r, room[:0])
	if err != nil {
		g.withoutKey(w, r, next, err)
		return
	}
	denied, err := g.ask(r.Context(), parts)
	if err != nil {
		g.log.failed(r.Context(), err, parts)
		if !g.passes(r.Context(), err) {
			g.refuse(w, r, statusOf(err), err)
			return
		}
	}
	if denied >= 0 {
		g.deny(w, r, parts, denied)
		return
	}
	if err := g.shape(r.Context(), parts); err != nil {
		g.log.gaveUp(r.Context(), err, parts)
		g.refuse(w, r, http.StatusServiceUnavailable, err)
		return
	}
	g.publish(w.Header(), parts)
	next.ServeHTTP(w, r)
}

// partsOf appends a part for each limit that applies to the request and has a cost
// other than 0. It returns ErrNoLimit or ErrNoKey if a key is missing.
func (g *gate) partsOf(r *http.Request, parts []part) ([]part, error) {
	applied := false
	for _, l := range g.limits {
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
		p := part{limit: l, key: key, n: n}
		if l.of != nil {
			p.given, p.brings = l.of(r)
		}
		parts = append(parts, p)
	}
	if !applied {
		return parts, ErrNoLimit
	}
	return parts, nil
}

// shape waits until the request's place in all queues has come. If its context
// ends before, shape returns the units of all parts and fails. This frees the
// place at the end of the queue: if others wait behind the request, a later
// request may start at the same time as another.
func (g *gate) shape(ctx context.Context, parts []part) error {
	var delay time.Duration
	for i := range parts {
		delay = max(delay, parts[i].res.Delay)
	}
	if delay <= 0 {
		return nil
	}
	if err := sleep(ctx, delay); err != nil {
		g.giveBack(ctx, parts)
		return err
	}
	for i := range parts { // the response is sent after the delay
		res := &parts[i].res
		res.ResetAfter = max(0, res.ResetAfter-delay)
	}
	return nil
}

// sleep waits for d, or until ctx ends. It fails at once if ctx's deadline comes
// before the end of d.
func sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
