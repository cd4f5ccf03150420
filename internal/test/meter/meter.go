package meter

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Meter is the meter of one key. Times are ns since 1970, on the clock of the limit's promise. For windows and logs
// this is Redis's clock. Times go back only when that clock does.
type Meter interface {
	// Admit counts n units.
	Admit(at, n int64)
	// Late counts n units that were admitted at a time before now and are reported only now. For windows they count in
	// the window of their admission.
	Late(now, at, n int64)
	// Holds reports whether a limiter that has counted all these units would admit n more.
	Holds(at, n int64) bool
	// Excess returns the largest excess so far, in units.
	Excess() float64
	// Seen returns a copy as of now, for a reader that has just received it.
	Seen(now int64) Meter
}

// clockSlack is the largest step back of a clock, in ns, during which time only stands still.
const clockSlack = algo.ClockSlack * 1000

// Of returns the meter of a limit. It counts units as they enter. For the output of a queue, see [Output].
func Of(l hybridlimit.Limit) Meter {
	switch algo.KindOf(l.Algorithm) {
	case algo.KindFixed, algo.KindSliding:
		return &Windows{sliding: l.Algorithm == hybridlimit.AlgSlidingWindow, rate: l.Rate, period: int64(l.Period)}
	case algo.KindLog:
		return &Log{rate: l.Rate, period: l.Period.Microseconds()}
	default:
		return NewBucket(algo.BucketOf(l))
	}
}
