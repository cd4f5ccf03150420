package hybridlimit

import (
	"context"
	"fmt"
)

// Ask is one limit's part of a call under several: so many units of a key.
type Ask struct {
	Limiter Limiter // of the first ask, or one that joins it
	Key     string  // as for AllowN
	N       int64   // units

	// Result is this limit's own answer. AllowAll writes it, and does not read
	// the old value. If the call is admitted, every ask has one; its Shadowed and
	// Delay are of this limit alone. If the call is denied, the limits known to
	// deny have one. The others have the zero Result, since nothing was taken
	// from them. With an error and no decision, all are zero.
	Result Result
}

// AllowAll is a call under several limits (per user, per address, for all), all
// or nothing: when one denies, nothing is taken of the others.
//
// The limiters must be of one kind: any of package local, those of one Redis
// client of package global, or those of one hub of package hybrid. What such a
// call costs, and what others see meanwhile, is said at the AllowJoint of these
// packages. Limiters that wrap others, such as those of package otellimit, can
// be asked too.
//
// The result is that of the limit that denied with the longest RetryAfter, or,
// when all admit, of the one with the fewest units remaining. Policy names that
// limit, so give the limiters names. Delay is the longest of all. Asks for one
// key of one limiter add up.
//
// Each limit's own answer is written into its [Ask]. Pass a slice (asks...) to
// read them.
//
// AllowAll is an *InvalidError (ErrInvalid) that names the ask, and takes
// nothing, if a Limiter is nil, is not [Joint], or does not join the first. Without
// asks it is ErrInvalid. Other errors are those of AllowN.
func AllowAll(ctx context.Context, asks ...Ask) (Result, error) {
	if len(asks) == 0 {
		return Result{}, fmt.Errorf("hybridlimit: AllowAll: %w: asks is empty, but needs at least one ask", ErrInvalid)
	}
	joint, ok := asks[0].Limiter.(Joint)
	if !ok {
		for i := range asks {
			asks[i].Result = Result{}
		}
		var bad Violations
		if asks[0].Limiter == nil {
			bad.Add("asks[0].Limiter", nil, "must not be nil")
		} else {
			bad.Add("asks[0].Limiter", fmt.Sprintf("%T", asks[0].Limiter), "must be a limiter that can be asked together with others (hybridlimit.Joint)")
		}
		return Result{}, bad.Err("hybridlimit: AllowAll")
	}
	return joint.AllowJoint(ctx, asks)
}

// Joint is a Limiter that can decide a call together with others of its kind,
// all or nothing. [AllowAll] is the function to call; Joins tells an adapter
// whether it can.
type Joint interface {
	Limiter
	// Joins reports whether AllowJoint can decide with the other limiter too: in
	// local with any of local, in global with those of its Redis client, in
	// hybrid with those of its hub. A limiter joins itself, and none joins nil.
	Joins(other Limiter) bool
	// AllowJoint decides the asks as AllowAll says, the receiver's own being one of them
	// or not: the Result is that of the limit that denied, or else of the one
	// with the fewest units remaining, and each Ask's Result its own limit's. A
	// limiter that is nil (as an interface, or as a pointer in it) or that does
	// not join is an *InvalidError that names the ask, and then nothing is taken.
	AllowJoint(ctx context.Context, asks []Ask) (Result, error)
}
