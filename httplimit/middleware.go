package httplimit

import (
	"context"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// New makes the middleware that puts all the limits in front of a handler. It
// fails with all that is wrong with its arguments at once (ErrInvalid).
//
// Handlers made by it are safe for concurrent use, as the limiters are, and
// start no goroutines. What one adds to a request with one hybrid limit is in
// docs/http.md.
func New(cfg Config, limits ...Limit) (func(http.Handler) http.Handler, error) {
	if err := violations(cfg, limits); err != nil {
		return nil, err
	}
	if cfg.Denied == nil {
		cfg.Denied = Problem
	}
	g := &gate{cfg: cfg, limits: make([]*limit, len(limits)), log: newComplaints(cfg.Logger)}
	for i, l := range limits {
		g.limits[i] = newLimit(i, l)
	}
	g.joint = jointOf(limits)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// gate is a middleware: what requests pass.
type gate struct {
	cfg    Config
	limits []*limit
	joint  hybridlimit.Joint // asks all at once; nil: they are asked in turn
	log    *complaints
}

// part is one limit's part of a request.
type part struct {
	*limit
	key string
	n   int64
	res hybridlimit.Result // SourceUnknown: not known, or not asked
	// unavailable says that res is what a limiter makes of having no answer.
	unavailable bool
	// passed says that the limiter failed, and the request goes on without it.
	passed bool
}

// fewParts is for how many limits a request's parts stay on the stack.
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
	denied := -1
	switch {
	case len(parts) == 0: // all of it is free
	case g.joint != nil && len(parts) > 1:
		denied, err = g.askTogether(r.Context(), parts)
	default:
		denied, err = g.askInTurn(r.Context(), parts)
	}
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

// partsOf finds the limits that a request is under, what is free left out. It
// fails where a key is missing.
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
		parts = append(parts, part{limit: l, key: key, n: n})
	}
	if !applied {
		return parts, ErrNoLimit
	}
	return parts, nil
}

// shape waits until the queues of the parts serve the request, as far as its
// context allows. Who gives up leaves the queues, and gets back what the other
// limits gave. Of those who wait it is the last place that becomes free: if it
// is not theirs, whoever comes next starts together with another.
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
	for i := range parts { // what is told is told now
		res := &parts[i].res
		res.ResetAfter = max(0, res.ResetAfter-delay)
	}
	return nil
}

// sleep waits for d, or until ctx ends; it fails at once where ctx's deadline is
// earlier than that.
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
