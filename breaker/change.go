package breaker

import (
	"errors"
	"fmt"
	"time"
)

// ErrSlow is the Cause of a Change that a slow call brought about: it took
// longer than SlowCall, though its error, if any, would not have counted.
var ErrSlow = errors.New("breaker: slow call")

// Change is one change of a Breaker's state.
type Change struct {
	// From and To are the states before and after.
	From, To State
	// Cause is why: the error of the last failed call when a breaker opens
	// (ErrSlow when it was merely slow), and nil when a probe begins or has
	// succeeded.
	Cause error
	// At is when, by the clock of this process.
	At time.Time
	// OpenFor is how long the breaker stays open before a probe: the time
	// drawn for this opening. 0 unless the breaker opened.
	OpenFor time.Duration
}

// String is the change as a line for a log: "closed → open for 612ms: i/o timeout".
func (c Change) String() string {
	s := fmt.Sprintf("%v → %v", c.From, c.To)
	if c.OpenFor > 0 {
		s += fmt.Sprintf(" for %v", c.OpenFor.Round(time.Millisecond))
	}
	if c.Cause != nil {
		s += ": " + c.Cause.Error()
	}
	return s
}

// note queues a change for delivery. It is called with b.mu held.
func (b *Breaker) note(c Change) {
	if b.cfg.OnChange != nil {
		b.untold = append(b.untold, c)
	}
}

// release unlocks b.mu and delivers what was noted, unless another call of
// release, in this goroutine or another, is at it and will find it.
func (b *Breaker) release() {
	if len(b.untold) == 0 || b.telling {
		b.mu.Unlock()
		return
	}
	b.tell()
}

// tell is called with b.mu held and gives it back. The defers keep the
// bookkeeping straight when OnChange panics or calls runtime.Goexit: what is
// still untold waits for the next release.
func (b *Breaker) tell() {
	b.telling = true
	defer func() {
		b.telling = false
		b.mu.Unlock()
	}()
	for len(b.untold) > 0 {
		c := b.untold[0]
		b.untold = b.untold[1:]
		b.tellOne(c)
	}
	b.untold = nil // let go of the causes
}

func (b *Breaker) tellOne(c Change) {
	b.mu.Unlock()
	defer b.mu.Lock()
	b.cfg.OnChange(c)
}
