package account

import (
	"strconv"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Mode is the way in which a process uses its part of a limit: see hybrid.Mode.
type Mode uint8

// The modes. In ModeExact, each call asks Redis, and the account decides only the calls that Redis does not answer.
const (
	ModeAuto     Mode = iota // leases, and credit as far as Overshoot allows
	ModeStrict               // leases only
	ModeDeferred             // credit only
	ModeExact

	modes
)

// Valid reports whether m is a mode.
func (m Mode) Valid() bool { return m < modes }

// String returns "auto", "strict", "deferred" or "exact".
func (m Mode) String() string {
	if m.Valid() {
		return [...]string{"auto", "strict", "deferred", "exact"}[m]
	}
	return "Mode(" + strconv.Itoa(int(m)) + ")"
}

// Conditions is the values that one event needs besides the account. The shell makes new Conditions for each event.
type Conditions struct {
	Bucket   algo.Bucket       // for a window: its units only, see Window
	Window   algo.Window       // Period 0: the limit is a bucket
	Floor    int64             // units that the class leaves to others; Bucket and Window are without them
	Limit    hybridlimit.Limit // in force for the key
	Mode     Mode              // of the limiter
	N        int64             // accounts of the key in the fleet: the processes, each times the classes of its limiter
	Credit   int64             // C, units
	Every    int64             // K: the number of owed units that makes a sync urgent
	Adaptive bool              // K grows with the key's demand
	Interval int64             // T, ns
	Blind    bool              // a key without a view may be taken for full: see MayBeFull
	RTT      int64             // ns
	Tick     int64             // ns; a step of the local clock
	MaxWait  int64             // ns; negative: a call never waits
	Fallback Fallback          // the fallback bucket of the key
	RelookIn int64             // ns, jittered: the time for which a view may prove a denial
	Closing  bool              // there are no more decisions, so a lease would be wasted
	Behind   bool              // syncs that may wait are late by more than T
	Lost     int64             // ns; the time at which a loss in Redis was last noticed; 0: never
	Broken   bool              // Redis must not be asked: the breaker is not closed, or a switch forbids it
}

// windowed reports whether the limit counts in windows.
func (c *Conditions) windowed() bool { return c.Window.Period > 0 }

// hasLeases reports whether the mode has leases and there are calls to use them.
func (c *Conditions) hasLeases() bool {
	return (c.Mode == ModeAuto || c.Mode == ModeStrict) && !c.Closing
}
