package algo

// A fixed window counts units in windows aligned to Redis's clock, from 0 at the epoch. Units above Rate, admitted on
// credit, are carried: the next window begins with them. Units that an earlier, larger limit permitted are not:
// State.Debt tells them apart. So the limit holds in the long run. The only excess is a burst at the end of one window
// and another at the beginning of the next: up to twice Rate in a moment.

// fixedRetry returns the µs until the first window that has room for n beside its carried and leased units.
func (w Window) fixedRetry(s State, n, at int64) int64 {
	if s.Cur+n <= w.Rate {
		return 0
	}
	over := s.Debt + s.Next + n - w.Rate // of the next window
	return w.end(&s) + ceilDiv(max(over, 0), w.Rate)*s.Period - at
}
