package breaker

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

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

// The longest duration accepted. It is far beyond what makes sense, and keeps
// 1.5·OpenFor and 10·SlowCall away from overflow.
const maxDuration = 24 * time.Hour

// The shortest window and open time accepted: below the resolution of the
// clocks and schedulers that would have to keep them.
const minDuration = time.Millisecond

func (c Config) withDefaults() Config {
	setDefault(&c.Failures, 3)
	setDefault(&c.FailureRatio, 0.5)
	setDefault(&c.MinCalls, 20)
	setDefault(&c.Window, 10*time.Second)
	setDefault(&c.SlowCall, 100*time.Millisecond)
	setDefault(&c.OpenFor, 500*time.Millisecond)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Violations is everything that is wrong with c. Each field is named with
// prefix in front ("HubConfig.Breaker."), so that a package which embeds a
// Config can report it with its own.
func (c Config) Violations(prefix string) hybridlimit.Violations {
	var bad hybridlimit.Violations
	c = c.withDefaults()
	if c.Failures < 0 {
		bad.Add(prefix+"Failures", c.Failures, "must not be negative")
	}
	// In this form because a NaN is not above 1 either.
	if !(c.FailureRatio <= 1) {
		bad.Add(prefix+"FailureRatio", c.FailureRatio, "must be at most 1")
	}
	if c.MinCalls < 0 {
		bad.Add(prefix+"MinCalls", c.MinCalls, "must not be negative")
	}
	inRange := func(field string, d time.Duration) {
		if d < minDuration || d > maxDuration {
			bad.Add(prefix+field, d, "must be 0 or from 1ms to 24h")
		}
	}
	inRange("Window", c.Window)
	if c.SlowCall > maxDuration {
		bad.Add(prefix+"SlowCall", c.SlowCall, "must be at most 24h")
	}
	inRange("OpenFor", c.OpenFor)
	return bad
}

// patience is how long a probe may be out before another may take its place:
// max(OpenFor, 10·SlowCall). After OpenFor, a failed probe would have been
// followed by another one anyway, so Redis sees no more probes than from an
// open breaker; and a probe that has taken ten times SlowCall can only fail.
func (c Config) patience() time.Duration {
	if c.SlowCall < 0 {
		return c.OpenFor
	}
	return max(c.OpenFor, 10*c.SlowCall)
}
