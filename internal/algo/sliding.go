package algo

// A sliding window estimates the units admitted in the trailing Period. It adds the count of this window to a part of
// the last window's count: the part of that window that is still within the trailing Period, as if its units had come
// evenly. If they did not, a true trailing window may hold up to nearly twice Rate.

// weight returns the ticks of the last window that are within the trailing Period at a time in this window.
func (w Window) weight(s State, at int64) int64 {
	return w.Unit - (at-w.Begin(s.Win))/w.Tick
}

// slidingRetry solves cur·W + prev·(W − k) + n·W ≤ Rate·W for the tick k: in this window, or in the next one, where
// prev is this window's cur and cur is the leased units. The time is not later than the end of the next window. In this
// window, n must also fit beside cur and the leased units.
func (w Window) slidingRetry(s State, n, at int64) int64 {
	if w.Level(s, at) >= n*w.Unit {
		return 0
	}
	start := w.Begin(s.Win)
	if s.Prev > 0 && s.Cur+s.Next+n <= w.Rate {
		if k := ceilDiv((s.Cur+s.Prev+n-w.Rate)*w.Unit, s.Prev); k <= (w.Period-1)/w.Tick {
			return start + k*w.Tick - at
		}
	}
	start += w.Period
	k := int64(0)
	if over := s.Cur + s.Next + n - w.Rate; over > 0 {
		k = w.Unit
		if s.Cur > 0 {
			k = min(ceilDiv(over*w.Unit, s.Cur), w.Unit) // its ticks fit an int64
		}
	}
	return start + min(k*w.Tick, w.Period) - at
}
