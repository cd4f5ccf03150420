package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// Mode chooses the source of units. All modes run the same code.
type Mode uint8

// The modes.
const (
	// ModeAuto spends leases first, and credit for new keys and for spikes. The fleet may admit Config.Overshoot of a
	// burst early, and repays it.
	ModeAuto = Mode(account.ModeAuto)
	// ModeStrict spends leases only: it admits no unit that Redis has not debited. The first call for a cold key
	// waits one round trip. So does a call when the process's part of the limit is below a unit or two.
	ModeStrict = Mode(account.ModeStrict)
	// ModeDeferred spends credit only: it counts locally and sends the count every K units or after T. No decision
	// waits once a key is warm. The fleet may admit up to a burst early, and repays it. For its first 1.5 s a process
	// does not know how many others there are. It gives no credit then, and each call asks Redis.
	ModeDeferred = Mode(account.ModeDeferred)
	// ModeExact asks Redis for every decision.
	ModeExact = Mode(account.ModeExact)
)

// String returns "auto", "strict", "deferred" or "exact".
func (m Mode) String() string { return account.Mode(m).String() }

// Fallback chooses the rule that decides while Redis does not answer.
type Fallback uint8

// The fallbacks. The zero value keeps the fleet's total near the limit.
const (
	// FallbackShare gives each process limit/N, where N is the last known fleet size,
	// but at least FallbackFloor units at once.
	FallbackShare = Fallback(fallback.PolicyShare)
	// FallbackFull gives each process the whole limit, so the fleet admits up to N times the limit.
	FallbackFull = Fallback(fallback.PolicyFull)
	// FallbackAllowAll admits everything.
	FallbackAllowAll = Fallback(fallback.PolicyAllowAll)
	// FallbackDenyAll denies everything except units that are already leased.
	FallbackDenyAll = Fallback(fallback.PolicyDenyAll)
)

// String returns "share", "full", "allow_all" or "deny_all".
func (f Fallback) String() string { return fallback.Policy(f).String() }
