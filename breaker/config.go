package breaker

import "time"

// Config says when a Breaker opens and for how long. The zero Config is ready
// for use.
type Config struct {
	// Failures is how many calls in a row must fail to open the breaker. It
	// counts failures however far apart they are; one success starts it anew.
	// Zero: 3. Smaller reacts sooner and trips on noise.
	Failures int

	// FailureRatio is the share of failed calls within Window that opens the
	// breaker too, in (0, 1]. Zero: 0.5. Negative: never by ratio. It catches
	// a Redis that fails often but not always, which Failures does not.
	FailureRatio float64

	// MinCalls is how many calls begun within Window must have ended before
	// FailureRatio counts. Zero: 20. Calls in flight do not count, or calls
	// that hang would hide those that failed.
	MinCalls int

	// Window is how far back FailureRatio looks. Zero: 10 s; else 1 ms to
	// 24 h. It moves in ten steps: a call is forgotten between 0.9 and 1
	// Window after it began. Costs ten sets of counters, whatever the traffic.
	Window time.Duration

	// SlowCall is how long a call may take: one that took longer counts as
	// failed, whatever it returned. Zero: 100 ms; at most 24 h. Negative: slow
	// calls are not counted. Keep it below the time-out of the calls, or it
	// says nothing new, and above the worst that Redis takes when well.
	SlowCall time.Duration

	// OpenFor is the mean time for which an opened breaker lets nobody
	// through. Each opening draws its own, uniformly from [0.5, 1.5)·OpenFor,
	// so that a fleet does not probe in step. Zero: 500 ms; else 1 ms to 24 h.
	// Longer costs more time on the fallback after Redis is back; shorter
	// costs Redis more probes, one per process and OpenFor.
	OpenFor time.Duration

	// OnChange is told of every change of state. Nil: nobody is told.
	//
	// It runs outside every lock, so it may call any method of the Breaker.
	// Changes come one at a time and in order: the goroutine that caused a
	// change delivers it before its Begin or End returns, unless a
	// goroutine is still delivering an earlier one (this one, even, when
	// OnChange itself causes a change); then that goroutine delivers both.
	// Waiting for it instead would be a lock over a callback under another
	// name. So keep it short: it delays a call to Redis.
	OnChange func(Change)
}
