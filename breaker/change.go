package breaker

import (
	"errors"
	"fmt"
	"time"
)

// ErrSlow is the Cause of a Change after a call that took longer than SlowCall and did not otherwise count as failed.
// Compare with errors.Is: the Cause also names the durations.
var ErrSlow = errors.New("breaker: slow call")

// Change is one change of a breaker's state.
type Change struct {
	// From and To are the states before and after.
	From, To State
	// Cause is the error of the last failed call if the breaker opens. It is an
	// ErrSlow if that call was only slow. Nil: a probe begins or has succeeded.
	Cause error
	// At is the time of the change, by the clock of this process.
	At time.Time
	// OpenFor is the time until the first probe, drawn for this opening. 0 unless the breaker opened.
	OpenFor time.Duration
}

// String returns the change as a line for a log: "closed → open for 612ms: i/o timeout".
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
