package hybridlimit

import "context"

// Ask is one limit's part of a call under several: so many units of a key.
type Ask struct {
	Limiter Limiter // one that joins the one that is called
	Key     string  // as for AllowN
	N       int64   // units

	// Result is this limit's own answer. AllowJoint writes it, and does not read
	// the old value. If the call is admitted, every ask has one; its Shadowed and
	// Delay are of this limit alone. If the call is denied, the limits known to
	// deny have one. The others have the zero Result, since nothing was taken
	// from them. With an error and no decision, all are zero.
	Result Result
}

// Joint is a Limiter that can decide a call together with others of its kind,
// all or nothing. It is AllowAll of local, global and hybrid for those who do
// not know which they have, such as adapters: whoever does know calls AllowAll.
type Joint interface {
	Limiter
	// Joins reports whether AllowJoint can decide with the other limiter too: in
	// local with any of local, in global with those of its Redis client, in
	// hybrid with those of its hub. A limiter joins itself, and none joins nil.
	Joins(other Limiter) bool
	// AllowJoint is AllowAll of the asks, the receiver's own being one of them
	// or not: the Result is that of the limit that denied, or else of the one
	// with the fewest units remaining, and each Ask's Result its own limit's. A
	// limiter that is nil (as an interface, or as a pointer in it) or that does
	// not join is an *InvalidError that names the ask, and then nothing is taken.
	AllowJoint(ctx context.Context, asks []Ask) (Result, error)
}
