package notice

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// Joins reports whether the limiter can be asked together with the other one, wrapped or not.
func (l *Limiter) Joins(other hybridlimit.Limiter) bool {
	if l == nil || isNil(other) {
		return false
	}
	j, ok := l.next.(adapter.Joint)
	if !ok {
		return false
	}
	inner := other
	if own, ok := other.(*Limiter); ok {
		inner = own.next
	}
	return j.Joins(inner) || j.Joins(news.Inner(other))
}

// AllowJoint asks the limiters together, and notes the Result of each. Of a limiter that is no adapter.Joint, it asks a
// single ask alone.
func (l *Limiter) AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	plain := make([]hybridlimit.Ask, len(asks))
	for i, a := range asks {
		if own, ok := a.Limiter.(*Limiter); ok {
			a.Limiter = own.Unwrap()
		}
		plain[i] = hybridlimit.Ask{Limiter: a.Limiter, Key: a.Key, N: a.N}
	}
	res, err := allowAll(ctx, plain)
	for i := range asks {
		asks[i].Result, asks[i].Taken = plain[i].Result, plain[i].Taken
		if own, ok := asks[i].Limiter.(*Limiter); ok && own != nil {
			own.note(asks[i].Key, &asks[i].Result)
		}
	}
	return res, err
}

// allowAll asks limiters of which none is of this package.
func allowAll(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error) {
	var joint adapter.Joint
	for _, a := range asks {
		if isNil(a.Limiter) { // the others name it in their error
			continue
		}
		j, ok := a.Limiter.(adapter.Joint)
		_, wraps := a.Limiter.(wrapper)
		if ok && (wraps || joint == nil) {
			joint = j
		}
		if ok && wraps { // a wrapper of another package must take its own off too
			break
		}
	}
	if joint != nil {
		return joint.AllowJoint(ctx, asks)
	}
	if len(asks) == 1 && !isNil(asks[0].Limiter) {
		a := &asks[0]
		res, err := a.Limiter.AllowN(ctx, a.Key, a.N)
		a.Result = res
		return res, err
	}
	var bad adapter.Violations
	bad.Add("asks", len(asks), "must be one, or of limiters that can be asked together with others (adapter.Joint)")
	return hybridlimit.Result{}, bad.Err("notice: AllowAll")
}
