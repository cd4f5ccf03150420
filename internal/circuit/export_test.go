package circuit

// SetRandom replaces the source of the open time's jitter. random returns a
// number in [0, n).
func (b *Breaker) SetRandom(random func(n int64) int64) { b.random = random }

// Unlocked reports whether the breaker's lock is free.
func (b *Breaker) Unlocked() bool {
	if !b.mu.TryLock() {
		return false
	}
	b.mu.Unlock()
	return true
}
