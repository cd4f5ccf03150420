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
	MaxLife  int64             // seconds; the longest life of a lease of a bucket. 0: 4
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

	// First and Last are the numbers of the windows of the earliest and the latest time that Redis's clock may show
	// now. A sync that is sent now arrives in Last or later. 0: not known, or no window.
	First, Last int64
}

func (c *Conditions) windowed() bool { return c.Window.Period > 0 }

// hasLedger reports whether Redis has a ledger of the leased units of the limit.
func (c *Conditions) hasLedger() bool { return !c.windowed() && !c.Bucket.Queue }

// present returns the number of the present window; 0: not known, because one begins about now.
func (c *Conditions) present() int64 {
	if c.First != c.Last {
		return 0
	}
	return c.First
}

// hasLeases reports whether the mode has leases and there are calls to use them.
func (c *Conditions) hasLeases() bool {
	return (c.Mode == ModeAuto || c.Mode == ModeStrict) && !c.Closing
}

// lead returns the ns that an urgent sync may take: four round trips, because it waits for a batch in flight and Redis
// may be busy, and two ticks, because the process may be late.
func (c *Conditions) lead() int64 { return 4*c.RTT + 2*c.Tick }

// life returns the longest life (ns) of a lease of the bucket.
func (c *Conditions) life() int64 { return c.Bucket.Life(c.MaxLife) * 1000 }

// longLeases reports whether leases of the bucket may live for longer than lookEvery.
func (c *Conditions) longLeases() bool { return c.life() > lookEvery }

// lookEvery is the longest time (ns) between two looks at the leases of a bucket, which may live for longer: units that
// the process does not need are back then.
const lookEvery = algo.Generation * 1000

// looksWithin returns the longest time (ns) until the next look at leases of a bucket. The units that were spent between
// two looks count as spent at the second one. So idle leases that may be long are back within this time and surelyIdle.
func (c *Conditions) looksWithin() int64 {
	if c.longLeases() {
		return lookEvery * 35 / 100
	}
	return lookEvery
}

// idleAfter returns the time (ns) without a use of the leases after which the process returns them. It is T, but at
// most a quarter of lookEvery. A unit that is on its way back cannot be spent while Redis hangs, so units in
// use stay.
func (c *Conditions) idleAfter() int64 { return min(c.Interval, lookEvery/4) }

// lookEarly returns the time (ns) before the end of a lease at which the process looks whether it has use for it.
func (c *Conditions) lookEarly() int64 { return c.idleAfter() + 2*c.RTT + 2*c.Tick }

// worthTelling returns the number of spent units in the ledger that are worth a message of an idle process: of a fleet
// in which each process has so many, a fiftieth of the bucket.
func (c *Conditions) worthTelling() int64 { return max(1, c.Limit.BurstSize()/(50*max(1, c.N))) }

// idleSpends is the number of units that an idle process would have spent by its demand, had its calls not stopped. If
// calls come at random times, one pause in 50 is that long, and costs a message.
const idleSpends = 4

// idleFor returns the time (ns) without a use after which a process with this demand is idle.
func (c *Conditions) idleFor(demand float64) int64 {
	return max(c.idleAfter(), int64(min(idleSpends*1e9/max(demand, 1e-3), float64(MaxView))))
}

// paceWindow is the longest period (ns) of a window in which a process looks at its pace. In each, it looks windowLooks
// times, but not less often than once in looksMost (ns).
const (
	paceWindow  = 3 * algo.WindowLease * 1000
	windowLooks = 16
	looksMost   = int64(300e6)
)

// wantedFrom is the shortest period (ns) of a window in which a refused process tells the others: they hear it within
// two seconds. In relookWindow (ns) after the refusal, the units that were idle are back.
const (
	wantedFrom   = int64(4e9)
	relookWindow = int64(1800e6)
)

// looksAtPace reports whether the process looks at its pace in a window. In a sliding one it returns units with its ask
// for the next one: see spareHere.
func (c *Conditions) looksAtPace() bool {
	return c.windowed() && !c.Window.Sliding && c.Window.Period*1000 <= paceWindow
}

// idleWindow is idleAfter for a long window whose units are not wanted. A process that uses the key now and then would
// need two syncs for each use if its units went back within seconds.
func (c *Conditions) idleWindow() int64 { return max(c.idleAfter(), c.Window.Period*1000/2) }
