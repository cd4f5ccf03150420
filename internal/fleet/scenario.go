package fleet

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Kind is what limits the fleet.
type Kind string

// The kinds. Auto, Strict, Deferred and RedisExact are the real hybrid limiter
// in its four modes; the others are for comparison.
const (
	Auto         Kind = "auto"
	Strict       Kind = "strict"
	Deferred     Kind = "deferred"
	RedisExact   Kind = "exact"          // every decision is one op
	CentralExact Kind = "central"        // one bucket without a network, the checked Go arithmetic
	CountAndPush Kind = "count-and-push" // the literature's: count locally, push each T, no lease, no bound
)

// Scenario is one run.
type Scenario struct {
	Name      string            // of the row in a table
	Seed      uint64            // everything random follows from it
	Kind      Kind              // what limits
	Processes int               // how many there are at the start
	Limit     hybridlimit.Limit // of every key
	Overshoot float64           // as hybrid.Config.Overshoot; for Auto
	Interval  time.Duration     // T; 0: the default

	Load   Load          // what is asked for
	Warm   time.Duration // how long the processes run before the load starts; 0: 3 s and twice the time to full, at most a minute
	Cold   bool          // no warm-up at all: all start with the load, within 50 ms
	Span   time.Duration // of the load
	Steady time.Duration // how much of it, at the start, the steady figures leave out

	Latency time.Duration // a round trip to Redis: half to get there, half to get back
	Faults  []Fault       // in any order
	// MaxKeys is hybrid.Config.MaxKeys, to put the LRU under pressure. 0: the default.
	MaxKeys int
	// FleetSize is hybrid.HubConfig.FleetSize: N until heartbeats have counted.
	FleetSize int
}

// Shape is how the load changes over time.
type Shape string

// The shapes.
const (
	Steady Shape = "steady" // Poisson
	OnOff  Shape = "on/off" // Poisson for On, nothing for Off, and again
	Ramp   Shape = "ramp"   // Poisson, from nothing to twice Factor
	Burst  Shape = "burst"  // Poisson at half of Factor, and once a second a tenth of a second's worth at once
)

// Load is what is asked for.
type Load struct {
	Shape   Shape         // zero: Steady
	Factor  float64       // calls per unit of the rate, per key, averaged over keys
	On, Off time.Duration // for OnOff
	// Zipf skews the processes' parts: the i-th gets 1/i^Zipf. 0: even.
	Zipf float64
	// Keys is how many keys there are; 0: one. KeyZipf skews them, and
	// KeyLow and KeyHigh clamp each key's load, in calls per unit of its rate.
	Keys            int
	KeyZipf         float64
	KeyLow, KeyHigh float64
	// MaxCost is the largest cost of a call, drawn evenly from 1. 0: 1.
	MaxCost int64
}

// FaultKind is what fails.
type FaultKind string

// The faults. Process is who it happens to; -1: everybody. One that is over
// the span's end runs its course after it; one that begins later does not
// happen. Processes are numbered from 0, those that join after those at the
// start; one that starts again keeps its number. A process that joins brings
// load of its own, 1/Processes of the whole; the load of one that is paused or
// gone is nobody's.
const (
	LoseRequests FaultKind = "lose requests" // with probability P, for For
	LoseReplies  FaultKind = "lose replies"  // executed, unanswered
	Duplicate    FaultKind = "duplicate"     // executed twice
	LateReplies  FaultKind = "late replies"  // by up to Size
	Slow         FaultKind = "slow"          // Size more latency each way
	PauseProcess FaultKind = "pause"         // nobody calls a process and its link is silent for For; its timers go on
	Crash        FaultKind = "crash"         // a process ends without a word; it starts again after For (negative: never)
	Leave        FaultKind = "leave"         // a process shuts down in order
	Join         FaultKind = "join"          // a new process
	ClockStep    FaultKind = "clock step"    // Redis's clock jumps by Size, either way
	Wipe         FaultKind = "wipe"          // FLUSHALL
	EvictKey     FaultKind = "evict key"     // the state of one key, drawn from the seed, vanishes from Redis
	ScriptFlush  FaultKind = "script flush"  // SCRIPT FLUSH
	KillRedis    FaultKind = "kill redis"    // gone for For, then back empty
	HangRedis    FaultKind = "hang redis"    // silent for For, then answers everything
)

// Fault is one thing that goes wrong.
type Fault struct {
	At      time.Duration // after the load started
	Kind    FaultKind
	Process int // -1: everybody
	For     time.Duration
	Size    time.Duration
	P       float64 // probability, per message; 0: all of them
}
