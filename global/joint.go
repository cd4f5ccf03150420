package global

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

var (
	_ adapter.Joint     = (*Limiter)(nil)
	_ adapter.Describer = (*Limiter)(nil)
)

// Joins reports whether AllowJoint can ask the other limiter together with this one. The other must be a limiter of
// this package with the same Redis client.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && o != nil && equal(o.runner.Client(), l.runner.Client())
}

// AllowJoint implements [hybridlimit.AllowAll]: a call under several limits (per user, per address, for all), all or
// nothing. When one limit denies, nothing is taken from the others.
//
// On a single Redis, one message has all keys, and Redis decides it as a whole. AllowJoint is then as exact as AllowN.
//
// On a Cluster or a Ring, a message has the keys of one tag. Keys have one tag if TagBy returns the same text for
// them, or if Tags is 1. The messages of several tags are sent at the same time. If one denies, the units of the others
// are given back, with one more message for each. Until then, for a round trip, other calls find these units taken and
// may be denied for that reason, even two calls each because of the other. No call is ever admitted because of them.
// Units return to the window in which they were taken. In a log their entry is removed. Units that a full bucket has
// refilled in the meantime do not come back twice.
//
// If the call is denied, the result is that of the limit that denied with the longest RetryAfter. If all limits admit,
// the result is that of the limit with the fewest units remaining. Policy names that limit. Delay is the longest of
// all. Asks for one key of one limiter add up. Limiters of one name that disagree on the limit of a key are refused.
// AllowJoint writes each limit's answer into its ask.
//
// Each message is sent once. It has the shortest Timeout of the limiters. If a message gets no answer, the error is
// ErrUnavailable, and its units may or may not have been taken, as with AllowN:
//
//   - If FailOpen is set for all limiters of that message, the other messages
//     decide. If none denies, their units stay taken, and the Result beside the
//     error admits.
//   - Otherwise the Result denies, and the units of the other messages are given
//     back.
//
// Giving back has one Timeout of its own. If it fails, the error also wraps a
// *NotReturnedError.
//
// AllowJoint returns ErrInvalid without asks, for a nil Limiter (as an interface, or as a pointer in it), and for a
// limiter that does not join. Nothing is taken then.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	all := make([]joint, len(asks))
	for i := range asks {
		asks[i].Result, asks[i].Taken = hybridlimit.Result{}, hybridlimit.Taken{}
	}
	for i, a := range asks {
		if !l.Joins(a.Limiter) {
			return hybridlimit.Result{}, l.stranger(i, a.Limiter)
		}
		all[i] = joint{Limiter: a.Limiter.(*Limiter), Key: a.Key, N: a.N}
	}
	return allowJoint(ctx, all, asks)
}

// stranger returns the error of an ask whose limiter does not join l.
func (l *Limiter) stranger(ask int, of hybridlimit.Limiter) error {
	own, ok := of.(*Limiter)
	switch {
	case of == nil || ok && own == nil:
		return invalid(ask, "Limiter", nil, "must not be nil")
	case ok:
		return invalid(ask, "Limiter", own.cfg.Name, fmt.Sprintf("must use the same Redis client as the limiter %q of the same call", l.cfg.Name))
	}
	return invalid(ask, "Limiter", fmt.Sprintf("%T", of), fmt.Sprintf("must be a limiter of package global with the Redis client of the limiter %q", l.cfg.Name))
}

// Name returns Config.Name, as in Result.Policy.
func (l *Limiter) Name() string { return l.cfg.Name }

// Policy returns the limit of key and the limiter's name.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	limit := l.terms.Load().limit
	if l.cfg.LimitFor != nil {
		limit = l.cfg.LimitFor(key)
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: limit}
}
