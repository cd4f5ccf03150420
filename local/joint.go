package local

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

var (
	_ hybridlimit.Joint     = (*Limiter)(nil)
	_ hybridlimit.Describer = (*Limiter)(nil)
)

// Joins reports whether AllowAll can ask the other limiter together with this one.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && o != nil
}

// AllowJoint implements [hybridlimit.AllowAll]: a call under several limits (per user, per address, for all), all or
// nothing. It holds the locks of all keys. It checks all limits, and takes units only if all admit. If one limit
// denies, nothing is taken from the others. Concurrent calls see no state in between.
//
// If limits deny, the result is that of the one with the longest RetryAfter. If all admit, it is that of the one with
// the fewest units remaining. Policy names that limit, so give the limiters names. Delay is the longest of all. Asks
// for one key of one limiter add up.
//
// AllowJoint writes each limit's answer into its ask. It fails as AllowN does. The error is ErrInvalid if there are no
// asks, or if a Limiter is nil (as an interface, or as a pointer in it) or does not join. With an error nothing is
// taken.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	all := make([]joint, len(asks))
	for i := range asks {
		asks[i].Result = hybridlimit.Result{}
	}
	for i, a := range asks {
		if !l.Joins(a.Limiter) {
			return hybridlimit.Result{}, joinError(i, a.Limiter)
		}
		all[i] = joint{Limiter: a.Limiter.(*Limiter), Key: a.Key, N: a.N}
	}
	return allowJointAt(ctx, time.Now(), all, asks)
}

// joinError returns the error of an ask whose limiter does not join.
func joinError(ask int, of hybridlimit.Limiter) error {
	field := fmt.Sprintf("asks[%d].Limiter", ask)
	var bad hybridlimit.Violations
	if own, ok := of.(*Limiter); of == nil || ok && own == nil {
		bad.Add(field, nil, "must not be nil")
	} else {
		bad.Add(field, fmt.Sprintf("%T", of), "must be a limiter of package local")
	}
	return bad.Err("local: AllowAll")
}

// Name returns Config.Name, as in Result.Policy.
func (l *Limiter) Name() string { return l.cfg.Name }

// Policy returns the limit that is enforced on key, for a class without its floor.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	limit := l.base.Load().limit
	if l.cfg.LimitFor != nil {
		if own := l.cfg.LimitFor(key); own != l.first {
			limit = own
		}
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: l.ofClass(limit)}
}
