package notice

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// window is a window of a limit, in Unix ns of Redis's clock, or of the process's in package local. The zero window is
// none.
type window struct{ begin, end int64 }

// bounds returns the window of a limit at a time: windows are aligned to multiples of their length since the epoch.
func bounds(limit hybridlimit.Limit, at int64) window {
	period := int64(limit.Period)
	into := at % period
	if into < 0 { // a clock before 1970
		into += period
	}
	return window{at - into, at - into + period}
}

// windowOf returns the window in which a Result was decided, which a process received at now. ResetAfter ends at a border
// of windows by the clock that decided. In debt, and for a sliding window, that is a later border than the end of this
// window. So the nearest border to now + ResetAfter tells how far the clock of this process is off, by up to half a
// period, and the window is the one at the time of the other clock.
//
// A ResetAfter of whole periods tells no border: of hybrid it means that the clock of Redis is not known yet. It counts
// by the clock of the process then, and so does a ResetAfter of 0.
func windowOf(limit hybridlimit.Limit, now time.Time, res *hybridlimit.Result) window {
	at, reset := now.UnixNano(), int64(res.ResetAfter)
	if reset > 0 && reset%int64(limit.Period) != 0 && reset < math.MaxInt64-max(at, 0)-int64(limit.Period) {
		ends := at + reset
		border, next := bounds(limit, ends).begin, bounds(limit, ends).end
		if next-ends < ends-border {
			border = next
		}
		at = border - reset
	}
	return bounds(limit, at)
}
