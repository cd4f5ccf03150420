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

// AllowJoint is what [hybridlimit.AllowAll] calls: a call under several limits
// (per user, per address, for all), all or nothing. Under the locks of their
// keys all limits are looked at, and units are taken only if all admit. When one
// denies, nothing is taken of the others. Others see nothing in between.
//
// The result is that of the limit that denied with the longest RetryAfter, or,
// when all admit, of the one with the fewest units remaining. Policy names that
// limit, so give the limiters names. Delay is the longest of all. Asks for one
// key of one limiter add up.
//
// AllowJoint writes each limit's answer into its ask. It fails as AllowN does.
// It is ErrInvalid without asks, and with a Limiter that is nil, as an interface
// or as a pointer in it, or that does not join. With an error nothing is taken.
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

// Policy returns the limit that is enforced on key.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	limit := l.base.Load().limit
	if l.cfg.LimitFor != nil {
		if own := l.cfg.LimitFor(key); own != l.first {
			limit = own
		}
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: limit}
}
