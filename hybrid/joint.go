package hybrid

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
	return ok && o.hub == l.hub
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
			return hybridlimit.Result{}, fmt.Errorf("hybrid: AllowJoint: ask %d (%q): %w: the limiter does not join this one", i, a.Key, hybridlimit.ErrInvalid)
		}
		all[i] = Ask{Limiter: a.Limiter.(*Limiter), Key: a.Key, N: a.N}
	}
	return l.hub.allowEach(ctx, all, asks)
}

// Policy tells what is enforced on key, and whether anybody is denied for it
// now: Shadow follows the switch. What SwitchAllowAll and SwitchDenyAll make of
// a limit is in Result.Source alone.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	limit := l.rules.Load().limit
	if l.cfg.LimitFor != nil {
		limit = l.cfg.LimitFor(key)
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: limit, Shadow: l.switches.shadow.Load()}
}
