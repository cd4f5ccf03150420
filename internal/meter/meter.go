package meter

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Meter is of one key. Times are ns since 1970, of a clock on which the limit
// is promised: for windows and logs that is Redis's. They do not go back but
// where that clock does.
type Meter interface {
	// Admit counts n units.
	Admit(at, n int64)
	// Late counts n units that were admitted at a time before now, and were
	// not heard of until now: in their window, where there are windows.
	Late(now, at, n int64)
	// Holds says whether a limiter that has counted all this would admit n
	// units more.
	Holds(at, n int64) bool
	// Excess is the largest so far, in units.
	Excess() float64
	// Seen is a copy, as of now for whoever has just been told.
	Seen(now int64) Meter
}

// clockSlack is how far in ns a clock may step back and only stand still.
const clockSlack = algo.ClockSlack * 1000

// Of is the meter of a limit: what counts are its units as they enter. What
// leaves a queue is [Output]'s.
func Of(l hybridlimit.Limit) Meter {
	switch algo.KindOf(l.Algorithm) {
	case algo.KindFixed, algo.KindSliding:
		return newWindows(l)
	case algo.KindLog:
		return newLog(l)
	default:
		return NewBucket(algo.BucketOf(l))
	}
}
