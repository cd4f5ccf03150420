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

// Sync is how soon an event wants a sync of the key.
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
	Sync   Sync               // how soon the key wants a sync

	Reason  Reason // of the action
	Asks    Reason // why neither units in hand nor credit decided; None: one did
	Without Reason // why Redis was not asked, or not waited for; None: it was not needed

	Left int64 // the fleet's units afterwards, estimated. The shell sets it.
	Ends int64 // ns; when the window ends, 0: not known or no window. The shell sets it.
}

// Reason is why a decision came out as it did. Inspect prints it.
type Reason uint8

// Of Verdict.Reason.
const (
	None          Reason = iota
	InHand               // admitted: units in hand
	OnCredit             // admitted: the last view leaves credit
	OnBlindCredit        // admitted: the key is not known, and is full by now
	Proved               // denied: the last view proves that the units do not exist
	NotYet               // denied: units are scarce, and other processes may ask first
	WaitsForRedis        // asks: see Asks
	Granted              // admitted: Redis granted the units to this call
	Spare                // admitted: of units that Redis leased with the answer
	Refused              // denied: Redis was asked for this call and refused
	LocalUnits           // admitted: the fallback bucket has the units
	LocalEmpty           // denied: the fallback bucket does not have them
	LocalAlways          // admitted: the fallback admits all
	LocalNever           // denied: the fallback denies all
	StrictDenies         // denied: mode strict admits nothing without an answer

	// Of Verdict.Asks.
	AnswerDue     // asks are on their way, and no credit is spent before their answer
	LocalUnsaid   // the fallback's units are to be told first
	NoCredit      // C is 0
	NoView        // Redis has said nothing of the key
	ViewOver      // the last view was of a window that is over
	CreditUsed    // C is owed
	ViewTooSmall  // the last view does not leave the units
	MoreThanThere // credit is left, but not for so many units

	// Of Verdict.Without.
	RedisAway   // the breaker is not closed, or a switch says so
	NeverWaits  // MaxWait is negative
	WaitedLong  // Redis has kept a call for this key waiting for longer than MaxWait
	WaitTimeout // this call has waited for MaxWait
)
