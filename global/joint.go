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
	return ok && equal(o.runner.client, l.runner.client)
}

// AllowJoint is AllowAll for those who have limiters as hybridlimit.Limiter. It
// writes each limit's answer into its ask.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	all := make([]Ask, len(asks))
	for i := range asks {
		asks[i].Result = hybridlimit.Result{}
	}
	for i, a := range asks {
		if a.Limiter == nil || !l.Joins(a.Limiter) {
			return hybridlimit.Result{}, fmt.Errorf("global: AllowJoint: ask %d (%q): %w: the limiter does not join this one", i, a.Key, hybridlimit.ErrInvalid)
		}
		all[i] = Ask{Limiter: a.Limiter.(*Limiter), Key: a.Key, N: a.N}
	}
	return allowEach(ctx, all, asks)
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
