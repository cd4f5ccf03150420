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

// Joins reports whether AllowJoint can ask the other limiter together with this one: it must be of the same hub.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && o != nil && o.hub == l.hub
}

// AllowJoint is what [hybridlimit.AllowAll] calls: a call under several limits
// (per user, per address, for all), all or nothing. When one denies, nothing is
// taken of the others. It is local work like AllowN: under the locks of the keys
// all limits are tried, and units are taken only if all admit. A key of which
// this process has nothing in hand is asked for first, while no lock is held; if
// another limit denies then, the units that Redis gave for this call are lost,
// and counted so. ModeExact and logs have nothing in hand to try: Redis is asked
// for these when all others admit, one message each, and they get back what they
// gave if the call is denied after all.
//
// The result is that of the limit that denied with the longest RetryAfter, or,
// when all admit, of the one with the fewest units remaining; Policy names that
// limit. Delay is the longest of all queues. Shadowed says that a shadow limit
// would have denied it, whichever that is. Only the limit that denied counts a
// denial. Asks for one key of one limiter add up. AllowJoint writes each limit's
// answer into its ask.
//
// It is ErrInvalid without asks, and with a Limiter that is nil, as an interface
// or as a pointer in it, or that does not join. Nothing is taken then.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	all := make([]joint, len(asks))
	for i := range asks {
		asks[i].Result = hybridlimit.Result{}
	}
	for i, a := range asks {
		if !l.Joins(a.Limiter) {
			return hybridlimit.Result{}, l.stranger(i, a.Limiter)
		}
		all[i] = joint{Limiter: a.Limiter.(*Limiter), Key: a.Key, N: a.N}
	}
	return l.hub.allowJoint(ctx, all, asks)
}

// stranger is the error of an ask whose limiter does not join l.
func (l *Limiter) stranger(ask int, of hybridlimit.Limiter) error {
	own, ok := of.(*Limiter)
	switch {
	case of == nil || ok && own == nil:
		return badLimiter(ask, nil, "must not be nil")
	case ok:
		return badLimiter(ask, own.cfg.Name, fmt.Sprintf("must be of the hub of the limiter %q, with which it is asked", l.cfg.Name))
	}
	return badLimiter(ask, fmt.Sprintf("%T", of), fmt.Sprintf("must be a limiter of package hybrid, of the hub of the limiter %q", l.cfg.Name))
}

func badLimiter(ask int, value any, problem string) error {
	var bad hybridlimit.Violations
	bad.Add(fmt.Sprintf("asks[%d].Limiter", ask), value, problem)
	return bad.Err("hybrid: AllowAll")
}

// check refuses asks that cannot be answered, before anything is counted.
func check(asks []joint) error {
	for i, a := range asks {
		if a.Limiter.closed.Load() {
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
