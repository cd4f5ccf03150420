package reference_test

import (
	"maps"
	"math/big"

	"github.com/hybridlimit/hybridlimit"
)

// Windows counts by window. A fixed window starts with the excess over Rate of the window before. A sliding window
// estimates the trailing window.
type Windows struct {
	sliding      bool
	rate, period int64
	counts       map[int64]int64 // by number; windows older than three have no effect
	last         int64           // the last window in use
}

func newWindows(l hybridlimit.Limit) *Windows {
	return &Windows{
		sliding: l.Algorithm == hybridlimit.AlgSlidingWindow, rate: l.Rate, period: micros(l), counts: map[int64]int64{},
	}
}

// Load implements Model.
func (w *Windows) Load(now int64) Model {
	c := *w
	c.counts = map[int64]int64{}
	number := now / w.period
	shift := int64(0)
	if w.last*w.period-now > slack {
		shift = w.last - number
	}
	for n, count := range w.counts {
		c.counts[n-shift] = count
	}
	c.last = max(w.last-shift, number)
	oldest := c.last - 4
	if !c.sliding {
		c.counts[oldest] = c.total(oldest) // so that no earlier window must be looked up
	}
	maps.DeleteFunc(c.counts, func(n, count int64) bool { return n < oldest || count == 0 })
	return &c
}

// at returns the time that counts: not before the begin of the last window.
func (w *Windows) at(now int64) int64 { return max(now, w.last*w.period) }

// total returns the count of a fixed window: its own units and those carried into it.
func (w *Windows) total(n int64) int64 {
	begin := int64(0)
	for i := n - 5; i < n; i++ {
		begin = max(0, begin+w.counts[i]-w.rate)
	}
	return begin + w.counts[n]
}

// part returns the part of the last window that still trails.
func (w *Windows) part(now int64) *big.Rat {
	elapsed := w.at(now) - w.at(now)/w.period*w.period
	return big.NewRat(w.period-elapsed, w.period)
}

// Free implements Model.
func (w *Windows) Free(now int64) *big.Rat {
	n := w.at(now) / w.period
	if !w.sliding {
		return whole(w.rate - w.total(n))
	}
	used := plus(whole(w.counts[n]), times(whole(w.counts[n-1]), w.part(now)))
	return minus(whole(w.rate), used)
}

// Fits implements Model.
func (w *Windows) Fits(now, n, _ int64) bool { return w.Free(now).Cmp(whole(n)) >= 0 }

// Delay implements Model.
func (w *Windows) Delay(int64, int64) int64 { return 0 }

// Take implements Model.
func (w *Windows) Take(now, n int64) { w.counts[w.at(now)/w.period] += n }

// Owe implements Model.
func (w *Windows) Owe(now, n, window int64) bool {
	number := w.at(now) / w.period
	room := plus(w.Free(now), whole(w.rate)) // a Rate of debt
	switch {
	case window == 0 || window >= number:
		w.counts[number] += min(n, max(0, floor(room)))
	case window < number-1:
		return false
	case w.sliding:
		room.Quo(room, w.part(now))
		w.counts[number-1] += min(n, max(0, floor(room)), 2*w.rate-w.counts[number-1])
	default:
		w.counts[number-1] += min(n, 2*w.rate-w.total(number-1))
		w.counts[number] -= max(0, w.total(number)-2*w.rate)
	}
	return true
}

// Refund implements Model.
func (w *Windows) Refund(now, n, window int64) {
	number := w.at(now) / w.period
	if window == 0 { // not known: units of this window, and the rest of the last one
		here := w.counts[number]
		if !w.sliding {
			here = w.total(number)
		}
		if n > here {
			w.Refund(now, here, number)
			w.Refund(now, n-here, number-1)
			return
		}
	}
	if window != 0 && window < number {
		if window != number-1 {
			return
		}
		number--
	}
	if w.sliding {
		w.counts[number] -= min(n, w.counts[number])
		return
	}
	w.counts[number] -= min(n, w.total(number))
	if current := w.at(now) / w.period; w.total(current) < 0 {
		w.counts[current] -= w.total(current)
	}
}

// Reset implements Model.
func (w *Windows) Reset(int64) { clear(w.counts) }
