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

// Joins reports whether AllowJoint can ask the other limiter together with this one: it must have the same Redis client.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && o != nil && equal(o.runner.Client(), l.runner.Client())
}

// AllowJoint is what [hybridlimit.AllowAll] calls: a call under several limits
// (per user, per address, for all), all or nothing. When one denies, nothing is
// taken of the others.
//
// Keys that share a slot are one message, which Redis decides as a whole: when
// all have one tag, AllowJoint is as exact as AllowN and costs as much. They have
// one when their limiters' Subject says the same of them, or with Tags of 1.
// Else there is a message for each tag, one after the other in the order of the
// tags. When a later one denies, the units of the earlier ones are given back:
// one message more for each. Meanwhile, a round trip or two, others find those
// units taken, and may be denied for them; no call is ever admitted for them. No
// two calls deny each other, since all take in one order. Windows and logs get
// back what they gave, in its window and as its entry; a bucket that was full
// again meanwhile keeps what has come back since.
//
// The result is that of the limit that denied with the longest RetryAfter (of
// one message: the limits of later ones are not asked then), or, when
// all admit, of the one with the fewest units remaining; Policy names that
// limit. Delay is the longest of all. Asks for one key of one limiter add up;
// limiters of one name that disagree on the limit of a key are refused.
// AllowJoint writes each limit's answer into its ask.
//
// Messages are sent once, and have the shortest Timeout of the limiters
// together. Where one is not answered, its units may or may not have been taken,
// as with AllowN; of the others nothing is, and the error is ErrUnavailable. If
// FailOpen holds for all limiters of that message, the others are asked all the
// same and may deny; else they keep what they gave, and the Result beside the
// error admits. To give back has one Timeout more; what that did not do is a
// *NotReturnedError beside the other errors.
//
// AllowJoint is ErrInvalid without asks, and with a Limiter that is nil, as an
// interface or as a pointer in it, or that does not join. Nothing is taken then.
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
	return allowJoint(ctx, all, asks)
}

// stranger is the error of an ask whose limiter does not join l.
func (l *Limiter) stranger(ask int, of hybridlimit.Limiter) error {
	own, ok := of.(*Limiter)
	switch {
	case of == nil || ok && own == nil:
		return invalid(ask, "Limiter", nil, "must not be nil")
	case ok:
		return invalid(ask, "Limiter", own.cfg.Name, fmt.Sprintf("must use the Redis client of the limiter %q, with which it is asked", l.cfg.Name))
	}
	return invalid(ask, "Limiter", fmt.Sprintf("%T", of), fmt.Sprintf("must be a limiter of package global with the Redis client of the limiter %q", l.cfg.Name))
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
