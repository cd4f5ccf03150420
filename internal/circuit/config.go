package circuit

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
)

// The longest duration accepted. It is far beyond what makes sense, and keeps
// 1.5·OpenFor and 10·SlowCall away from overflow.
const maxDuration = 24 * time.Hour

// The shortest window and open time accepted: below the resolution of the
// clocks and schedulers that would have to keep them.
const minDuration = time.Millisecond

// withDefaults returns c with a value in each field that was zero.
func withDefaults(c breaker.Config) breaker.Config {
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
func Violations(c breaker.Config, prefix string) hybridlimit.Violations {
	var bad hybridlimit.Violations
	c = withDefaults(c)
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
func patience(c breaker.Config) time.Duration {
	if c.SlowCall < 0 {
		return c.OpenFor
	}
	return max(c.OpenFor, 10*c.SlowCall)
}
