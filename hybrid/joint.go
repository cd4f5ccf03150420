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
	return ok && o != nil && o.hub == l.hub
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
	return l.hub.allowEach(ctx, all, asks)
}

// stranger is the error of an ask whose limiter does not join.
func stranger(ask int, of hybridlimit.Limiter) error {
	if own, ok := of.(*Limiter); of == nil || ok && own == nil {
		return badLimiter("AllowJoint", ask, nil, "must not be nil")
	}
	return badLimiter("AllowJoint", ask, fmt.Sprintf("%T", of), "must be a limiter of this one's hub")
}

func badLimiter(of string, ask int, value any, problem string) error {
	var bad hybridlimit.Violations
	bad.Add(fmt.Sprintf("asks[%d].Limiter", ask), value, problem)
	return bad.Err("hybrid: " + of)
}

// check refuses asks that cannot be answered, before anything is counted.
func (h *Hub) check(asks []Ask) error {
	for i, a := range asks {
		switch {
		case a.Limiter == nil:
			return badLimiter("AllowAll", i, nil, "must not be nil")
		case a.Limiter.hub != h:
			return badLimiter("AllowAll", i, a.Limiter.cfg.Name, "must be of the hub that is asked")
		case a.Limiter.closed.Load():
			return hybridlimit.ErrClosed
		}
		if err := hybridlimit.CheckRequest(a.Key, a.N, a.Limiter.cfg.MaxKeyBytes); err != nil {
			return fmt.Errorf("hybrid: AllowAll: ask %d: %w", i, err)
		}
	}
	return nil
}

// Policy tells what is enforced on key, and whether anybody is denied for it
// now: Shadow follows the switch. What SwitchAllowAll and SwitchDenyAll make of
// a limit is in Result.Source alone.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	limit := l.plan.Load().Limit
	if l.cfg.LimitFor != nil {
		limit = l.cfg.LimitFor(key)
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: limit, Shadow: l.switches.shadow.Load()}
}
