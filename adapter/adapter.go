// Package adapter has what authors of limiters and of adapters need, and programs that only call a limiter do not: what a
// limiter can do beside Allow (adapter.go), and the checks of requests and configurations (check.go).
//
// A limiter of calls in flight makes its permits with hybridlimit.NewPermit, and one that books with NewReservation.
package adapter

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
)

// Describer is a Limiter that reports the limits that it enforces, so that an adapter can publish them, for example in
// HTTP fields. The limiters of local, global and hybrid are Describers.
type Describer interface {
	hybridlimit.Limiter
	// Name returns the limiter's name, as in Result.Policy. It never changes. Empty: none.
	Name() string
	// Policy returns the limit of key. It takes no units and does not ask Redis. It calls LimitFor and does not
	// validate its answer. It does not know a limit that came with a call (AllowLimit).
	Policy(key string) hybridlimit.Policy
}

// Joint is a Limiter that can decide a call together with others of its kind, all or nothing. Programs call
// [hybridlimit.AllowAll]. An adapter calls Joins first, to check that limiters can decide together.
type Joint interface {
	hybridlimit.Limiter
	// Joins reports whether AllowJoint can decide with the other limiter too. In local it can with any limiter of
	// local, in global with limiters of the same Redis client, and in hybrid with limiters of the same hub. A limiter
	// joins itself. No limiter joins nil.
	Joins(other hybridlimit.Limiter) bool
	// AllowJoint decides the asks and returns a Result as AllowAll does. It writes each limit's own answer into its
	// Ask. The receiver's limiter need not be among the asks. If a limiter is nil (as an interface, or as a pointer in
	// it) or does not join, the error is an *InvalidError that names the ask, and nothing is taken.
	AllowJoint(ctx context.Context, asks []hybridlimit.Ask) (hybridlimit.Result, error)
}

// Classer is implemented by limiters with classes of calls, of which some leave a part of the limit to others. Adapters
// take the name of the class from a request.
type Classer interface {
	// ForClass returns the limiter of a class. For a name that is not declared it returns the class that leaves the
	// most to others. It never fails, and costs some ns.
	ForClass(name string) hybridlimit.Limiter
}

// NumSources is the number of values of hybridlimit.Source. Every Source is below it.
const NumSources = int(hybridlimit.SourceRateLease) + 1
