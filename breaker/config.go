package breaker

import "time"

// Config sets when the breaker opens and for how long. The zero Config is ready for use.
type Config struct {
	// Failures is the number of failed calls in a row that opens the breaker. The time between them does not matter;
	// one success restarts the count. Zero: 3. A smaller number reacts sooner and opens on chance failures.
	Failures int

	// FailureRatio is the share of failed calls within Window that also opens the breaker, in (0, 1]. Zero: 0.5.
	// Negative: never by ratio. It detects a Redis that fails often but not always, which Failures misses.
	FailureRatio float64

	// MinCalls is the number of calls begun within Window that must have ended before FailureRatio counts. Zero: 20.
	// Calls in flight do not count: hanging calls would otherwise hide the failed ones.
	MinCalls int

	// Window is the period over which FailureRatio counts. Zero: 10 s; else 1 ms to 24 h. It moves in ten steps: a call
	// is forgotten between 0.9 and 1 Window after it began. Cost: ten sets of counters, at any traffic.
	Window time.Duration

	// SlowCall is the longest duration of a call that does not count as failed. A longer call counts as failed with any
	// result. A call may take three of the shortest round trips more, for a new connection or script. Zero: 100 ms; at
	// most 24 h. Negative: slow calls are not counted. Set it below the time-out of the calls, or it has no effect, and
	// above the slowest answer of a healthy Redis. It is longer in a large fleet: see
	// hybrid.HubConfig.SyncTimeout.
	SlowCall time.Duration

	// OpenFor is the mean time for which an open breaker permits no call. Each opening draws its own time, uniformly
	// from [0.5, 1.5)·OpenFor, so that the processes of a fleet do not probe at the same moment. Zero: 500 ms; else 1
	// ms to 24 h. A longer time keeps the fallback longer after Redis is back. A shorter time costs Redis more probes:
	// one per process and OpenFor. It is longer in a large fleet: see
	// hybrid.HubConfig.SyncTimeout.
	OpenFor time.Duration

	// OnChange is called after every change of state. Nil: it is not called.
	//
	// It runs outside every lock. Changes arrive one at a time and in order. A goroutine that calls Redis causes a
	// change, delivers it, and continues after OnChange has returned. There is one exception: while a goroutine is
	// still delivering an earlier change, that goroutine delivers the later one too. So keep OnChange short: it delays
	// a call to Redis. On a Redis Cluster or Ring there is one breaker per tag, and calls for different tags may
	// overlap.
	OnChange func(Change)
}
