package httplimit

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// jointOf returns the limiter that can ask all limiters together, or nil.
func jointOf(limits []Limit) hybridlimit.Joint {
	if len(limits) < 2 {
		return nil
	}
	joint, ok := limits[0].Limiter.(hybridlimit.Joint)
	if !ok {
		return nil
	}
	for _, l := range limits[1:] {
		if !joint.Joins(l.Limiter) {
			return nil
		}
	}
	return joint
}

// ask decides a request. denied is the index of the part that denies, or -1. The
// limit with Of is asked when the others have admitted.
func (g *gate) ask(ctx context.Context, parts []part) (denied int, err error) {
	first := len(parts)
	if first > 0 && parts[first-1].of != nil {
		first--
	}
	if g.joint == nil || first < 2 {
		return g.askInTurn(ctx, parts, 0)
	}
	denied, err = g.askTogether(ctx, parts[:first])
	if denied >= 0 || err != nil && !g.passes(ctx, err) {
		return denied, err
	}
	denied, last := g.askInTurn(ctx, parts, first)
	if last != nil {
		err = last
	}
	return denied, err
}

// askTogether asks all limiters in one call. denied is the index of the part that
// denies, with the longest wait if several do, or -1. After a denial the results
// of the other parts may stay unknown.
func (g *gate) askTogether(ctx context.Context, parts []part) (denied int, err error) {
	asks := make([]hybridlimit.Ask, len(parts))
	for i, p := range parts {
		asks[i] = hybridlimit.Ask{Limiter: p.limiter, Key: p.key, N: p.n}
	}
	res, err := g.joint.AllowJoint(ctx, asks)
	unavailable, err := g.unavailable(ctx, res, err, parts)
	if err != nil {
		if g.passes(ctx, err) { // no unit was charged; ask in turn, so that the other limits still apply
			g.log.failed(ctx, err, parts)
			return g.askInTurn(ctx, parts, 0)
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
	if !res.Allowed && denied < 0 { // this Joint does not report which part denies
		denied, parts[0].res, parts[0].unavailable = 0, res, unavailable
	}
	return denied, nil
}

// askInTurn asks the limiters one after the other, from the part of this index on.
// After a denial the earlier parts get their units back. The same holds after a
// failure, unless FailOpen admits the request.
func (g *gate) askInTurn(ctx context.Context, parts []part, from int) (denied int, err error) {
	for i := from; i < len(parts); i++ {
		p := &parts[i]
		res, failure := p.allow(ctx)
		if p.unavailable, failure = g.unavailable(ctx, res, failure, parts); failure != nil {
			err = failure // of several failures the last is returned
			if g.passes(ctx, failure) {
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

// allow asks the limiter, under the limit that the request brings.
func (p *part) allow(ctx context.Context) (hybridlimit.Result, error) {
	if p.brings {
		return p.limited.AllowLimit(ctx, p.key, p.n, p.given)
	}
	return p.limiter.AllowN(ctx, p.key, p.n)
}

// unavailable reports whether a limiter decided without Redis: by its fallback,
// and with ErrUnavailable. An error beside a decision is logged and dropped, for
// example if units could not be given back. Any other error is returned.
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

// refunder is a limiter that can take units back.
type refunder interface {
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

// refunderOf returns the limiter, or the first limiter that it wraps (Unwrap),
// that is a refunder.
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

// giveBackTimeout bounds giveBack, which continues after the request has ended:
// the units must be returned even if the client has gone.
const giveBackTimeout = time.Second

// giveBack returns the units of a request that another limit denied, or that could
// not wait. A limiter that cannot take units back keeps them: they come back as
// its limit refills.
func (g *gate) giveBack(ctx context.Context, parts []part) {
	if len(parts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for i := range parts {
		p := &parts[i]
		if !p.res.Allowed || p.res.Shadowed || uncounted(p.res.Source) {
			continue // no unit was charged, or none is counted
		}
		if p.brings {
			continue // see Limit.Of
		}
		if l, ok := refunderOf(p.limiter); ok {
			if _, err := l.Refund(ctx, p.key, p.n); err != nil {
				g.log.failed(ctx, err, parts)
			}
		}
	}
}

// uncounted reports whether no limiter counts the units of an admission from this
// source.
func uncounted(s hybridlimit.Source) bool {
	return s == hybridlimit.SourceFallback || s == hybridlimit.SourceStatic || s == hybridlimit.SourceSwitch
}
