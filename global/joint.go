package global

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
)

var (
	_ hybridlimit.Joint     = (*Limiter)(nil)
	_ hybridlimit.Describer = (*Limiter)(nil)
)

// Joins says whether AllowAll can ask the other limiter together with this one.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && o != nil && equal(o.runner.Client(), l.runner.Client())
}

// AllowJoint is AllowAll for those who have limiters as hybridlimit.Limiter. It
// writes each limit's answer into its ask. A Limiter that is nil, as an interface
// or as a pointer in it, or that does not join is ErrInvalid.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	all := make([]Ask, len(asks))
	for i := range asks {
		asks[i].Result = hybridlimit.Result{}
	}
	for i, a := range asks {
		if !l.Joins(a.Limiter) {
			return hybridlimit.Result{}, stranger(i, a.Limiter)
		}
		all[i] = Ask{Limiter: a.Limiter.(*Limiter), Key: a.Key, N: a.N}
	}
	return allowEach(ctx, all, asks)
}

// stranger is the error of an ask whose limiter does not join.
func stranger(ask int, of hybridlimit.Limiter) error {
	field := fmt.Sprintf("asks[%d].Limiter", ask)
	var bad hybridlimit.Violations
	if own, ok := of.(*Limiter); of == nil || ok && own == nil {
		bad.Add(field, nil, "must not be nil")
	} else {
		bad.Add(field, fmt.Sprintf("%T", of), "must be a limiter of package global with the Redis client of this one")
	}
	return bad.Err("global: AllowJoint")
}

// Name is what Config says, as in Result.Policy.
func (l *Limiter) Name() string { return l.cfg.Name }

// Policy tells what is enforced on key.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	limit := l.terms.Load().limit
	if l.cfg.LimitFor != nil {
		limit = l.cfg.LimitFor(key)
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: limit}
}
