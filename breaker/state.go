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

// Mode says who decides on the state: the breaker or an operator.
type Mode uint8

// The modes. The zero Mode is ModeAuto.
const (
	// ModeAuto decides by how calls end.
	ModeAuto Mode = iota
	// ModeForceOpen lets no call through: for taking Redis away on purpose,
	// and for trying out what happens without it.
	ModeForceOpen
	// ModeForceClosed lets every call through and counts how they end, but
	// does not open: for when the breaker is thought to be wrong.
	ModeForceClosed

	modes // how many there are
)

var modeNames = [modes]string{"auto", "force-open", "force-closed"}

// String is "auto", "force-open" or "force-closed".
func (m Mode) String() string {
	if m < modes {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}
