package fleet

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Kind is the limiter of the fleet.
type Kind string

// The kinds. Auto, Strict, Deferred and RedisExact are the real hybrid limiter in its four modes. The others are for
// comparison.
const (
	Auto         Kind = "auto"
	Strict       Kind = "strict"
	Deferred     Kind = "deferred"
	RedisExact   Kind = "exact"          // each decision is one op
	CentralExact Kind = "central"        // one bucket without a network, with the verified Go arithmetic
	CountAndPush Kind = "count-and-push" // the limiter of the literature: counts locally, pushes each T; no lease, no bound
)

// real reports whether the limiters are real, with a Redis.
func (k Kind) real() bool { return k != CentralExact && k != CountAndPush }

// Scenario is one run.
type Scenario struct {
	Name      string            // of the row in a table
	Seed      uint64            // of all randomness
	Kind      Kind              // the limiter
	Processes int               // number at the start
	Limit     hybridlimit.Limit // of every key
	Changes   []Change          // of the limit, in order; of token and leaky buckets only
	Overshoot float64           // as hybrid.Config.Overshoot; for Auto
	Interval  time.Duration     // T; 0: the default

	Load   Load          // the calls
	Warm   time.Duration // time from the start of the processes to that of the load; 0: 3 s and twice the time to full, at most a minute
	Cold   bool          // no warm-up: all processes start with the load, within 50 ms
	Span   time.Duration // of the load
	Steady time.Duration // the first part of the load, which the steady figures leave out

	// Floor is the floor of the class of the calls that are not critical; 0: there are no classes, and all calls are
	// alike. For the kinds with Redis.
	Floor float64
	// Critical is the part of the calls that are critical. Each second, Spike more critical calls come within 50 ms,
	// spread over the processes.
	Critical float64
	Spike    int

	Latency time.Duration // a round trip to Redis: half in each direction
	Faults  []Fault       // in any order
	// MaxKeys is hybrid.Config.MaxKeys. A small value puts the LRU under pressure. 0: the default.
	MaxKeys int
	// FleetSize is hybrid.HubConfig.FleetSize: N until the heartbeats have counted.
	FleetSize int
	// Neighbours is the number of calls a second that each process makes to the other limiters of its hub: see package
	// neighbours. 0: the hub has one limiter. For the kinds with Redis.
	Neighbours int
}

// Change sets the limit of the fleet, as hybrid.Limiter.SetFleetLimit does. The limit has the algorithm of
// Scenario.Limit.
type Change struct {
	At    time.Duration // after the start of the load
	Limit hybridlimit.Limit
}

// hearing is the time in which all processes hear of a change: two intervals of heartbeats, and a round trip.
const hearing = 2100 * time.Millisecond

// Shape is the change of the load over time.
type Shape string

// The shapes.
const (
	Steady Shape = "steady" // Poisson
	OnOff  Shape = "on/off" // Poisson for On, no calls for Off, repeated
	Ramp   Shape = "ramp"   // Poisson, from zero to twice Factor
	Burst  Shape = "burst"  // Poisson at half of Factor, and once a second a tenth of a second's calls at once
	Rush   Shape = "rush"   // once, Off after the start: all calls evenly within On, and evenly over the processes
	Groups Shape = "groups" // each Off, a group of calls evenly within On, on one process
)

// Load is the calls of the fleet.
type Load struct {
	Shape Shape // zero: Steady
	// Factor is per key, averaged over keys: calls per unit of the rate. For Rush it is calls per unit of the burst.
	// For Groups it is groups per Off.
	Factor  float64
	On, Off time.Duration // for OnOff, Rush and Groups
	// MinSize and MaxSize are the range of the calls of one of the Groups, drawn evenly. InTurn gives the groups to the
	// processes in turn. Otherwise each goes to a random one. A process that joins gets no group, and no part of a
	// Rush.
	MinSize, MaxSize int
	InTurn           bool
	// Zipf skews the parts of the processes: the i-th gets 1/i^Zipf. 0: even. A Rush, and groups in turn, are always
	// even.
	Zipf float64
	// Keys is the number of keys; 0: one. KeyZipf skews their load. KeyLow and KeyHigh clamp the load of each key, in
	// calls per unit of its rate.
	Keys            int
	KeyZipf         float64
	KeyLow, KeyHigh float64
	// MinCost and MaxCost are the range of the cost of a call, drawn evenly. 0: 1.
	MinCost, MaxCost int64
}

// FaultKind is the kind of a fault.
type FaultKind string

// The faults. Process is the affected process; -1: all. A fault that lasts beyond the span runs to its end. A fault
// that would begin after the span does not happen.
//
// Processes are numbered from 0. Processes that join get the numbers after those at the start. A process that starts
// again keeps its number. A process that joins has its own load, 1/Processes of the whole. The load of a paused or
// ended process is dropped.
const (
	LoseRequests FaultKind = "lose requests" // with probability P, for For
	LoseReplies  FaultKind = "lose replies"  // executed, but not answered
	Duplicate    FaultKind = "duplicate"     // executed twice
	LateReplies  FaultKind = "late replies"  // by up to Size
	Slow         FaultKind = "slow"          // Size more latency each way
	PauseProcess FaultKind = "pause"         // a process gets no calls and its link is silent for For; its timers continue
	Crash        FaultKind = "crash"         // a process ends without a shutdown; it starts again after For (negative: never)
	Leave        FaultKind = "leave"         // a process shuts down in order
	Join         FaultKind = "join"          // a new process
	ClockStep    FaultKind = "clock step"    // Redis's clock jumps by Size, forward or back
	Wipe         FaultKind = "wipe"          // FLUSHALL
	EvictKey     FaultKind = "evict key"     // the state of one key, drawn from the seed, vanishes from Redis
	Mistype      FaultKind = "mistype"       // another program has replaced each key, with probability P, by one of another type
	ScriptFlush  FaultKind = "script flush"  // SCRIPT FLUSH
	KillRedis    FaultKind = "kill redis"    // no Redis for For, then an empty one
	HangRedis    FaultKind = "hang redis"    // silent for For, then it answers all requests
)

// Fault is one fault.
type Fault struct {
	At      time.Duration // after the start of the load
	Kind    FaultKind
	Process int // -1: all
	For     time.Duration
	Size    time.Duration
	P       float64 // probability, per message; 0: all messages
}
