package breaker

import "fmt"

// State is the state of a breaker. The zero State is Closed.
type State uint8

// The states.
const (
	// Closed permits every call: Redis counts as working.
	Closed State = iota
	// HalfOpen permits one call at a time, the probe.
	HalfOpen
	// Open permits no call until its time is over.
	Open

	states // the number of states
)

var stateNames = [states]string{"closed", "half-open", "open"}

// String returns "closed", "half-open" or "open".
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}
