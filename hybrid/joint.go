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

// Joins reports whether AllowJoint can decide the other limiter together with this one. It can if both belong to the same hub.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && o != nil && o.hub == l.hub
}

// AllowJoint decides one call under several limits (per user, per address, for
// all), all or nothing. [hybridlimit.AllowAll] calls it. If one limit denies, no
// units are taken from the others. Like AllowN it is local work: it tries all
// limits under the locks of the keys, and takes units only if all admit. Two
// limits with units in hand cost about four calls of Allow (BenchmarkAllowAll). Up
// to four such limits allocate nothing, and neither does their denial from memory
// if each asks for one unit. The slow path decides all other calls. If this
// process has no units of a key in hand, it asks Redis first, without holding a
// lock. If another limit then denies, the units that Redis gave for this call are
// lost, and counted as lost.
//
// ModeExact and logs have no units in hand. Redis is asked for these last, when
// all other limits admit, with one message each. If the call is denied in the
// end, their units are given back.
//
// If several limits deny, the result is that of the one with the longest
// RetryAfter. If all admit, it is that of the one with the fewest units
// remaining. Policy names that limit. Delay is the longest of all queues.
// Shadowed reports whether any shadow limit would have denied the call. Only the
// limit whose denial is the result counts a denial. Asks for one key of one
// limiter add up. AllowJoint writes the answer of each limit into its ask.
//
// The error is ErrInvalid if there are no asks, or if a Limiter is nil (as an
// interface, or a nil pointer in one) or does not join. No units are taken then.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	if res, ok := l.hub.allCommon(asks); ok {
		return res, nil
	}
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

// stranger returns the error for an ask whose limiter does not join l.
func (l *Limiter) stranger(ask int, of hybridlimit.Limiter) error {
	own, ok := of.(*Limiter)
	switch {
	case of == nil || ok && own == nil:
		return badLimiter(ask, nil, "must not be nil")
	case ok:
		return badLimiter(ask, own.cfg.Name, fmt.Sprintf("must have the same hub as the limiter %q of the same call", l.cfg.Name))
	}
	return badLimiter(ask, fmt.Sprintf("%T", of), fmt.Sprintf("must be a limiter of package hybrid with the same hub as the limiter %q", l.cfg.Name))
}

func badLimiter(ask int, value any, problem string) error {
	var bad hybridlimit.Violations
	bad.Add(fmt.Sprintf("asks[%d].Limiter", ask), value, problem)
	return bad.Err("hybrid: AllowAll")
}

// check rejects invalid asks before anything is counted.
func check(asks []joint) error {
	for i, a := range asks {
		if a.Limiter.control.Closed.Load() {
			return hybridlimit.ErrClosed
		}
		if err := hybridlimit.CheckRequest(a.Key, a.N, a.Limiter.cfg.MaxKeyBytes); err != nil {
			return fmt.Errorf("hybrid: AllowAll: asks[%d]: %w", i, err)
		}
	}
	return nil
}

// Policy returns the limit that is enforced on key, for a class without its floor. Shadow follows the switch: it
// reports whether the limiter denies no call now. SwitchAllowAll and
// SwitchDenyAll do not change the Policy; only Result.Source shows them.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: l.control.OfClass(l.limitFor(key)), Shadow: l.control.Shadow.Load()}
}
