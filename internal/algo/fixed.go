package algo

// A fixed window counts units in windows that are aligned to Redis's clock,
// from 0 at the epoch. What was admitted too much in one, on credit, is
// carried into the next: a window begins at what the one before has above
// Rate. So the long run holds, and a burst at the end of one window and the
// begin of the next is the only excess: up to twice Rate in a moment.

// fixedRetry waits for the first window in which n fits beside what is carried
// into it.
func (w Window) fixedRetry(s State, n, at int64) int64 {
	over := s.Cur + n - w.Rate
	if over <= 0 {
		return 0
	}
	return (s.Win+ceilDiv(over, w.Rate))*w.Period - at
}
