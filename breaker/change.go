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
