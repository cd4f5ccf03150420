package httplimit

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// jointOf is the limiter that can ask all of them together, if there is one.
func jointOf(limits []Limit) hybridlimit.Joint {
	joint, ok := limits[0].Limiter.(hybridlimit.Joint)
	if !ok || len(limits) == 1 {
		return nil
	}
	for _, l := range limits[1:] {
		if !joint.Joins(l.Limiter) {
			return nil
		}
	}
	return joint
}

// askTogether decides all parts at once. denied is the part that refused, that
// with the longest wait if there are more, or -1. Of a denial the parts that did
// not refuse stay unknown.
func (g *gate) askTogether(ctx context.Context, parts []part) (denied int, err error) {
	asks := make([]hybridlimit.Ask, len(parts))
	for i, p := range parts {
		asks[i] = hybridlimit.Ask{Limiter: p.limiter, Key: p.key, N: p.n}
	}
	res, err := g.joint.AllowJoint(ctx, asks)
	unavailable, err := g.unavailable(ctx, res, err, parts)
	if err != nil {
		if g.passes(ctx, err) { // nothing was taken; one that fails must not free the others
			g.log.failed(ctx, err, parts)
			return g.askInTurn(ctx, parts)
		}
		return -1, err
	}
	denied = -1
	for i := range parts {
		p, one := &parts[i], asks[i].Result
		p.res, p.unavailable = one, unavailable && one.Source == hybridlimit.SourceFallback
		if !res.Allowed && one.Source != hybridlimit.SourceUnknown && (denied < 0 || one.RetryAfter > parts[denied].res.RetryAfter) {
			denied = i
		}
	}
	if !res.Allowed && denied < 0 { // a Joint that does not say which
		denied, parts[0].res, parts[0].unavailable = 0, res, unavailable
	}
	return denied, nil
}

// askInTurn decides the parts one after the other. A denial gives back what the
// former ones took; so does a failure, unless it is passed over.
func (g *gate) askInTurn(ctx context.Context, parts []part) (denied int, err error) {
	for i := range parts {
		p := &parts[i]
		res, oops := p.limiter.AllowN(ctx, p.key, p.n)
		if p.unavailable, oops = g.unavailable(ctx, res, oops, parts); oops != nil {
			err = oops // the last one tells as much as the first
			if g.passes(ctx, oops) {
				p.passed = true
				continue
			}
			g.giveBack(ctx, parts[:i])
			return -1, err
		}
		if p.res = res; !res.Allowed {
			g.giveBack(ctx, parts[:i])
			return i, err
		}
	}
	return -1, err
}

// unavailable says whether a Result is what a limiter decides without Redis,
// beside ErrUnavailable. That is logged, and no failure; so is an error beside a
// decision, such as units that could not be given back.
func (g *gate) unavailable(ctx context.Context, res hybridlimit.Result, err error, parts []part) (bool, error) {
	switch {
	case err == nil || res.Source == hybridlimit.SourceUnknown:
		return false, err
	case errors.Is(err, hybridlimit.ErrUnavailable) && res.Source == hybridlimit.SourceFallback:
		g.log.degraded(ctx, err, parts)
		return true, nil
	}
	g.log.failed(ctx, err, parts)
	return false, nil
}

// refunder is what limiters offer that can take units back.
type refunder interface {
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

// refunderOf is the limiter, or what it wraps, if that can take units back.
func refunderOf(l hybridlimit.Limiter) (refunder, bool) {
	for {
		if r, ok := l.(refunder); ok {
			return r, true
		}
		w, ok := l.(interface{ Unwrap() hybridlimit.Limiter })
		if !ok {
			return nil, false
		}
		l = w.Unwrap()
	}
}

// giveBackTimeout bounds a give-back, which does not end with the request: the
// client may be gone, its units are not.
const giveBackTimeout = time.Second

// giveBack returns what was taken for a request that another limit denied, or
// that could not wait. Limiters that cannot, nor wrap one that can (Unwrap),
// keep it; the units come back as their limits refill.
func (g *gate) giveBack(ctx context.Context, parts []part) {
	if len(parts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for i := range parts {
		p := &parts[i]
		if !p.res.Allowed || p.res.Shadowed || uncounted(p.res.Source) {
			continue // nothing was taken, or nobody counts
		}
		if l, ok := refunderOf(p.limiter); ok {
			if _, err := l.Refund(ctx, p.key, p.n); err != nil {
				g.log.failed(ctx, err, parts)
			}
		}
	}
}

// uncounted says whether what was admitted is in nobody's books.
func uncounted(s hybridlimit.Source) bool {
	return s == hybridlimit.SourceFallback || s == hybridlimit.SourceStatic || s == hybridlimit.SourceSwitch
}
