package account

import "github.com/hybridlimit/hybridlimit"

// Action is the answer to a call.
type Action uint8

// The actions.
const (
	Admit Action = iota
	Deny
	Ask // the call waits for Redis
)

// Sync is the urgency of the sync that an event requests for the key.
type Sync uint8

// The urgencies, the least urgent first.
const (
	SyncNot    Sync = iota
	SyncLazily      // within T
	SyncNow
)

// Verdict is a decision.
type Verdict struct {
	Action Action             // admit, deny or ask
	Source hybridlimit.Source // of the decision
	Retry  int64              // ns, of a denial
	Delay  int64              // ns, of a call that a queue admits
	Sync   Sync               // the urgency of the key's next sync

	Reason  Reason // of the action
	Asks    Reason // reason for which neither held units nor credit decided; None: one did
	Without Reason // reason for which Redis was not asked, or not waited for; None: Redis was not needed

	// Window is the number of the window in which Redis has counted the units of an answer, or will count the owed
	// ones. The answer may have come after its end. 0: not known, or no window.
	Window int64

	// The shell sets the next fields.

	Left   int64 // the fleet's units afterwards, estimated; negative: debt
	Barred int64 // the part of Left that this process cannot have before its next poll
	Ends   int64 // ns; the end of the window; 0: not known or no window
}

// Reason is the reason of a decision. Inspect prints it.
type Reason uint8

// The reasons.
const (
	// For Verdict.Reason.

	None          Reason = iota
	InHand               // admitted: from held units
	OnCredit             // admitted: the last view leaves credit
	OnBlindCredit        // admitted: there is no view of the key, and the key must be full by now
	Proved               // denied: the last view proves that the units do not exist
	NotYet               // denied: units are scarce, and the next poll is later
	WaitsForRedis        // asks: see Asks
	Granted              // admitted: Redis granted the units to this call
	Spare                // admitted: from other units of the answer
	Refused              // denied: Redis was asked for this call and refused
	LocalUnits           // admitted: the fallback bucket has the units
	LocalEmpty           // denied: the fallback bucket does not have the units
	LocalAlways          // admitted: the fallback admits all
	LocalNever           // denied: the fallback denies all
	StrictDenies         // denied: ModeStrict admits nothing without an answer

	// For Verdict.Asks.

	AnswerDue     // waiting calls are in flight, and no credit is spent before their answer
	LocalUnsaid   // Redis must first be told of the units of the fallback
	NoCredit      // C is 0
	NoView        // there is no view of the key
	ViewOver      // the last view was of a window that is over
	CreditUsed    // C is owed
	ViewTooSmall  // the last view leaves no units for credit
	MoreThanThere // credit is left, but not for so many units

	// For Verdict.Without.

	RedisAway   // the breaker is not closed, or a switch forbids asking Redis
	NeverWaits  // MaxWait is negative
	WaitedLong  // Redis has kept a call for this key waiting for longer than MaxWait
	WaitTimeout // this call has waited for MaxWait
)

// Books records the effect of an event on the units of a key. The shell adds it to the limiter's counters. hybrid.Stats
// has the equation that holds for these counters.
type Books struct {
	Acked    int64 // owed units that Redis acknowledged
	Debited  int64 // units that Redis granted to waiting calls, or leased
	Netted   int64 // owed units that a grant or a lease paid
	Refunded int64 // units given back that Redis acknowledged, or that are void
	Returned int64 // units that callers gave back
	Expired  int64 // leased units that ended unspent
	Lost     int64 // granted or leased units that came too late, or for calls that had left
	Dropped  int64 // owed units that Redis is never told of
	Forgiven int64 // units of the fallback that had been refilled when Redis came back
	Resynced int64 // 1: the sync goes out because Redis may have lost the key
}
