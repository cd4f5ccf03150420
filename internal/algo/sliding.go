package algo

// A sliding window estimates what was admitted in the trailing Period: what is
// counted in this window, and of the last one the part of it that still
// trails, as if it had been spread evenly. It is an estimate: of arrivals that
// were not spread evenly, up to nearly twice Rate fit into a true trailing
// window.

// weight is how many ticks of the last window still trail at a time in this
// one.
func (w Window) weight(s State, at int64) int64 {
	return w.Unit - (at-s.Win*w.Period)/w.Tick
}

// slidingRetry solves cur·W + prev·(W − k) + n·W ≤ Rate·W for the tick k, in
// this window or in the next one, where prev is this one's cur and its own cur
// is 0. After that nothing is left.
func (w Window) slidingRetry(s State, n, at int64) int64 {
	if w.Level(s, at) >= n*w.Unit {
		return 0
	}
	start := s.Win * w.Period
	if s.Prev > 0 {
		if k := ceilDiv((s.Cur+s.Prev+n-w.Rate)*w.Unit, s.Prev); k <= (w.Period-1)/w.Tick {
			return start + k*w.Tick - at
		}
	}
	start += w.Period
	k := int64(0)
	if s.Cur+n > w.Rate {
		k = ceilDiv((s.Cur+n-w.Rate)*w.Unit, s.Cur)
	}
	return start + min(k*w.Tick, w.Period) - at
}
