package breaker

import "fmt"

// State is what a Breaker lets through.
type State uint8

// The states.
const (
	// Closed lets every call through: Redis is well as far as is known.
	Closed State = iota
	// HalfOpen lets one call through, the probe.
	HalfOpen
	// Open lets no call through until its time is over.
	Open

	states // how many there are
)

var stateNames = [states]string{"closed", "half-open", "open"}

// String is "closed", "half-open" or "open".
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}
