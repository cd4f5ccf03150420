package circuit

import (
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/breaker"
)

// maxDuration is the longest duration accepted. It is far above every useful
// value, and keeps 1.5·OpenFor and 10·SlowCall from overflowing.
const maxDuration = 24 * time.Hour

// minDuration is the shortest Window and OpenFor accepted. Clocks and schedulers do not keep shorter ones.
const minDuration = time.Millisecond

// withDefaults returns c with its zero fields set to their defaults.
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

// Violations returns every invalid field of c. It puts prefix before the name of
// each field ("HubConfig.Breaker."), for a Config inside another one.
func Violations(c breaker.Config, prefix string) adapter.Violations {
	var bad adapter.Violations
	c = withDefaults(c)
	bad.AddIf(c.Failures < 0, prefix+"Failures", c.Failures, "must not be negative")
	// Not "> 1": a NaN must be refused too.
	bad.AddIf(!(c.FailureRatio <= 1), prefix+"FailureRatio", c.FailureRatio, "must be at most 1")
	bad.AddIf(c.MinCalls < 0, prefix+"MinCalls", c.MinCalls, "must not be negative")
	inRange := func(field string, d time.Duration) {
		bad.AddIf(d < minDuration || d > maxDuration, prefix+field, d, "must be 0 or from 1ms to 24h")
	}
	inRange("Window", c.Window)
	bad.AddIf(c.SlowCall > maxDuration, prefix+"SlowCall", c.SlowCall, "must be at most 24h")
	inRange("OpenFor", c.OpenFor)
	return bad
}
