package hybrid

import "fmt"

// Mode says where units come from. All modes run the same code.
type Mode uint8

// The modes.
const (
	// ModeAuto spends leases first, and credit for new keys, for spikes, and
	// while the bucket is nearly full. The fleet may admit Config.Overshoot
	// of a burst early, and repays it.
	ModeAuto Mode = iota
	// ModeStrict spends leases only: nothing is admitted that Redis has not
	// debited. A cold key waits one round trip. So does, for now, each call
	// of a key whose bucket is nearly full: a lease may live only as long as
	// the bucket could not fill up, which is then too short to be of use.
	ModeStrict
	// ModeDeferred spends credit only: count locally, push every K units or
	// T. The cheapest for even traffic far below the limit.
	ModeDeferred
	// ModeExact asks Redis for every decision.
	ModeExact

	modes
)

// String returns "auto", "strict", "deferred" or "exact".
func (m Mode) String() string {
	if m < modes {
		return [...]string{"auto", "strict", "deferred", "exact"}[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Fallback says what decides while Redis does not answer.
type Fallback uint8

// The fallbacks. The zero value keeps the fleet's total near the limit.
const (
	// FallbackShare gives each process limit/N, N as last known.
	FallbackShare Fallback = iota
	// FallbackFull gives each process the whole limit: N times as much.
	FallbackFull
	// FallbackAllowAll admits everything.
	FallbackAllowAll
	// FallbackDenyAll denies everything but units already leased.
	FallbackDenyAll

	fallbacks
)

// String returns "share", "full", "allow_all" or "deny_all".
func (f Fallback) String() string {
	if f < fallbacks {
		return [...]string{"share", "full", "allow_all", "deny_all"}[f]
	}
	return fmt.Sprintf("Fallback(%d)", uint8(f))
}
