package notice

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// window is a window of a limit, in Unix ns of Redis's clock, or of the process's in package local. The zero window is
// none.
type window struct{ begin, end int64 }

func (w window) has(at int64) bool { return at >= w.begin && at < w.end }

// windowed reports whether a limit has windows with a begin and an end.
func windowed(l hybridlimit.Limit) bool {
	switch l.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow:
		return l.Period > 0
	case hybridlimit.AlgCalendarWindow:
		return l.Validate() == nil // a limiter of another package may not have checked it
	}
	return false
}

// fromUse reports whether windows begin with a use.
func fromUse(l hybridlimit.Limit) bool { return l.Calendar.Unit == hybridlimit.FromUse }

// at returns the window at a time: the period of a calendar, or a window aligned to multiples of its length since the
// epoch. It is not for windows that begin with a use.
func (t *terms) at(at int64) window {
	if t.periods != nil {
		p := t.periods.At(time.Unix(0, at).UnixMicro())
		return window{p.Begin * 1000, p.End * 1000}
	}
	period := int64(t.limit.Period)
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
func (t *terms) windowOf(now time.Time, res *hybridlimit.Result) window {
	at, reset, period := now.UnixNano(), int64(res.ResetAfter), int64(t.limit.TimeToFull())
	known := reset > 0 && reset < math.MaxInt64-max(at, 0)-2*period
	if fromUse(t.limit) {
		return windowFromUse(at, reset, int64(t.limit.Period), known)
	}
	if known && reset%period != 0 {
		ends := at + reset
		border := t.at(ends).begin
		if next := t.at(ends).end; next-ends < ends-border {
			border = next
		}
		at = border - reset
	}
	return t.at(at)
}

// windowFromUse is windowOf for a window that began with a use, at a whole second of Redis's clock. In debt, ResetAfter
// ends with the window after this one.
func windowFromUse(at, reset, period int64, known bool) window {
	if !known {
		reset = period
	}
	ends := time.Unix(0, at+reset).Round(time.Second).UnixNano()
	end := ends - (reset-1)/period*period
	return window{end - period, end}
}
