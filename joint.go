package hybridlimit

import (
	"context"
	"fmt"
)

// Ask is the part of one limit in a call under several limits: N units of a key.
type Ask struct {
	Limiter Limiter // it must join the limiter of the first ask, or be an Acquirer
	Key     string  // as for AllowN
	N       int64   // units

	// Permit is held if Limiter is an Acquirer and the call is admitted: release it when the call ends. AllowAll writes
	// it, and does not read the old value. Of asks for one key of one Acquirer, the first has the permit of all.
	Permit Permit

	// Taken names the units that were taken, for package spend. AllowAll writes it, and does not read the old value.
	Taken Taken

	// Result is this limit's own answer. AllowAll writes it, and does not read the old value. If the call is admitted,
	// every ask has a Result, whose Shadowed and Delay are of this limit alone. If the call is denied, only the limits
	// that are known to deny have one. The others have the zero Result, because nothing was taken from them. With an
	// error and no decision, all are zero.
	Result Result
}

// AllowAll decides one call under several limits (per user, per address, for
// all), all or nothing: if one limit denies, nothing is taken from the others.
//
// The limiters must be of one kind: any limiters of package local, limiters of package global with one Redis client, or
// limiters of one hub of package hybrid. The AllowJoint of these packages documents the cost of such a call, and its
// effect on concurrent calls. Limiters of packages otellimit and notice, which wrap others, are accepted beside them.
//
// If limits deny, the result is that of the one with the longest RetryAfter. If all admit, it is that of the one with
// the fewest units remaining. Policy names that limit, so give the limiters names. Delay is the longest of all. Asks
// for one key of one limiter add up.
//
// AllowAll writes each limit's own answer into its [Ask]. Pass a slice (asks...) to read the answers.
//
// Asks whose Limiter is an [Acquirer] may be of any package, beside rate limiters of one kind. AllowAll acquires their
// permits first, in the order of the limiters' names and of the keys, so that calls with the same limits do not wait
// for each other. Give such limiters different names. It asks the rates while it holds the permits. It releases them if
// a limit denies, and on any error, also if the Result holds the decision of a fallback. Pass a slice, because its asks
// have the permits.
//
// If a Limiter is nil, is not an adapter.Joint, or does not join the first, the error is an
// *InvalidError (ErrInvalid) that names the ask, and nothing is taken. Without
// asks the error is ErrInvalid. Other errors are those of AllowN.
func AllowAll(ctx context.Context, asks ...Ask) (Result, error) {
	if len(asks) == 0 {
		return Result{}, fmt.Errorf("hybridlimit: AllowAll: %w: asks is empty, but needs at least one ask", ErrInvalid)
	}
	for i := range asks {
		if _, ok := asks[i].Limiter.(Acquirer); ok {
			return acquireAll(ctx, asks)
		}
		asks[i].Permit = Permit{}
	}
	return allowJoint(ctx, asks)
}

// allowJoint asks limiters of one kind.
func allowJoint(ctx context.Context, asks []Ask) (Result, error) {
	one, ok := asks[0].Limiter.(joint)
	if !ok {
		for i := range asks {
			asks[i].Result, asks[i].Taken = Result{}, Taken{}
		}
		var bad violations
		if asks[0].Limiter == nil {
			bad.add("asks[0].Limiter", nil, "must not be nil")
		} else {
			bad.add("asks[0].Limiter", fmt.Sprintf("%T", asks[0].Limiter), "must be a limiter that can be asked together with others (adapter.Joint)")
		}
		return Result{}, bad.err("hybridlimit: AllowAll")
	}
	for i := range asks {
		if w, ok := asks[i].Limiter.(wrappedJoint); ok {
			one = w
			break
		}
	}
	return one.AllowJoint(ctx, asks)
}

// wrappedJoint is a joint limiter that wraps another one. It is asked before limiters that wrap none, because only it
// knows what it wraps.
type wrappedJoint interface {
	joint
	Unwrap() Limiter
}

// joint has the methods of adapter.Joint, which has their comments.
type joint interface {
	Joins(other Limiter) bool
	AllowJoint(ctx context.Context, asks []Ask) (Result, error)
}
