package hybridlimit

import (
	"fmt"
	"math"
	"time"
)

// Never is the RetryAfter of a call that can never succeed: its cost is above the burst, or its limit is Blocked.
const Never time.Duration = math.MaxInt64

// Result is the answer to one call.
type Result struct {
	// Allowed is true if the call may proceed.
	Allowed bool
	// Shadowed is true if a limit in shadow mode would have denied the call.
	Shadowed bool
	// Granted is the number of units granted: the cost if allowed, else 0. For AllowAtMost it may lie between the two.
	Granted int64
	// Limit is the burst size, in units.
	Limit int64
	// Remaining is the number of units left, also if the cost is above the burst. In hybrid it is an estimate for the
	// fleet from the last sync, and a denial has a Remaining below its cost.
	Remaining int64
	// RetryAfter is the time until the same call can succeed: 0 if allowed, Never if it cannot succeed. In local and
	// global it is exact, unless another call takes the units first. In hybrid the call may succeed up to a round trip
	// and 5 ms earlier.
	RetryAfter time.Duration
	// ResetAfter is the time until the key has the state of an unused key.
	ResetAfter time.Duration
	// Delay is the time to wait before forwarding, for AlgLeakyQueue, or before use, for a Reservation.
	Delay time.Duration
	// Source is the origin of the decision.
	Source Source
	// Policy is the limiter's name.
	Policy string
}

// Source is the origin of a decision. It shows which guarantee holds for it.
type Source uint8

// The sources.
const (
	// SourceUnknown is the zero value: no decision was made.
	SourceUnknown Source = iota
	// SourceLocal: decided by a limiter of package local, which knows this process only.
	SourceLocal
	// SourceLease: admitted with leased units, which Redis has already debited.
	SourceLease
	// SourceCredit: admitted on credit. Redis learns of the units with the next sync.
	SourceCredit
	// SourceRedis: decided by Redis, which was asked for this call.
	SourceRedis
	// SourceDenyCache: denied in memory. Either an answer of Redis has shown that no call can be admitted yet, or units
	// are scarce and other processes come before this one.
	SourceDenyCache
	// SourceTimeout: denied because Redis did not answer within MaxWait (ModeStrict only).
	SourceTimeout
	// SourceFallback: decided locally because Redis does not answer, or because a switch forbids asking it. The shared
	// limit does not hold while this is reported.
	SourceFallback
	// SourceStatic: decided without state. The cost is above the burst, or the limit is Unlimited or Blocked.
	SourceStatic
	// SourceSwitch: an operator has set a switch that allows or denies
	// everything. No limit holds while this is reported.
	SourceSwitch
	// SourceShed: decided by a shedder, which protects one process from more calls than it can run at once.
	SourceShed
	// SourcePause: denied because the key is paused: by package spend, or as a penalty for too many denials.
	SourcePause
	// SourceRateLease: decided in memory, by a leased rate. The shared limit holds.
	SourceRateLease

	sources // the number of sources
)

var sourceNames = [sources]string{
	"unknown", "local", "lease", "credit", "redis",
	"deny_cache", "timeout", "fallback", "static", "switch", "shed", "pause", "rate_lease",
}

// String returns the name of the source in metrics: "lease", "deny_cache".
func (s Source) String() string {
	if s < sources {
		return sourceNames[s]
	}
	return fmt.Sprintf("Source(%d)", uint8(s))
}
