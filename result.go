package hybridlimit

import (
	"fmt"
	"math"
	"time"
)

// Never is the RetryAfter of a call that can never succeed: its cost exceeds
// the burst.
const Never time.Duration = math.MaxInt64

// Result is the answer to one call.
type Result struct {
	// Allowed says whether the call may proceed.
	Allowed bool
	// Shadowed says that a shadow limit would have denied the call.
	Shadowed bool
	// Granted is the units granted: the cost when allowed, else 0; between
	// the two for AllowAtMost.
	Granted int64
	// Limit is the burst size in units.
	Limit int64
	// Remaining is the units left, also where the cost is above the burst. In
	// hybrid it estimates the fleet's from the last sync.
	Remaining int64
	// RetryAfter is how long to wait before the same call can succeed: 0 when
	// allowed, Never when it cannot. Exact in local and global where nobody
	// else comes first; in hybrid a lower bound.
	RetryAfter time.Duration
	// ResetAfter is how long until the key is as if never used.
	ResetAfter time.Duration
	// Delay is, for AlgLeakyQueue, how long to wait before forwarding.
	Delay time.Duration
	// Source says who decided.
	Source Source
	// Policy is the limiter's name.
	Policy string
}

// Source says who made a decision, and so how far it can be trusted.
type Source uint8

// The sources.
const (
	// SourceUnknown is the zero value: no decision was made.
	SourceUnknown Source = iota
	// SourceLocal is a limiter that knows this process only.
	SourceLocal
	// SourceLease spent units that this process had already taken from Redis.
	SourceLease
	// SourceCredit spent units that Redis hears of at the next sync.
	SourceCredit
	// SourceRedis asked Redis for this very call.
	SourceRedis
	// SourceDenyCache denied because Redis has proved that nobody can be
	// admitted yet, or because units are scarce and others have their turn
	// before this process's.
	SourceDenyCache
	// SourceTimeout denied because Redis did not answer within MaxWait
	// (ModeStrict only).
	SourceTimeout
	// SourceFallback decided locally because Redis does not answer, or, by a
	// switch, is not to be asked. The shared limit does not hold while this is
	// reported.
	SourceFallback
	// SourceStatic needed no state: the cost exceeds the burst, or the limit is
	// Unlimited or Blocked.
	SourceStatic
	// SourceSwitch is a switch, set by hand, that allows or denies everything.
	// No limit holds while this is reported.
	SourceSwitch

	sources // how many there are
)

// NumSources is how many sources there are: Source values lie below it.
const NumSources = int(sources)

var sourceNames = [sources]string{
	"unknown", "local", "lease", "credit", "redis",
	"deny_cache", "timeout", "fallback", "static", "switch",
}

// String returns the name that metrics use: "lease", "deny_cache".
func (s Source) String() string {
	if s < sources {
		return sourceNames[s]
	}
	return fmt.Sprintf("Source(%d)", uint8(s))
}
