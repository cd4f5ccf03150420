// Package refresh decides when Config.LimitFor is asked again about a key: at one deadline for each key.
package refresh

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter"
)

const (
	// Default is the interval for a LimitRefresh of 0.
	Default = time.Minute
	// Shortest is the shortest interval: a budget of hybrid may end up to two ticks of 5 ms late.
	Shortest = 10 * time.Millisecond
)

// Check adds a violation if a Config may not have this LimitRefresh.
func Check(bad *adapter.Violations, every time.Duration) {
	switch {
	case every < 0:
		bad.Add("Config.LimitRefresh", every, "must not be negative; hybridlimit.Never means never")
	case every != 0 && every < Shortest:
		bad.Add("Config.LimitRefresh", every, fmt.Sprintf("must be at least %v, or 0 for %v", Shortest, Default))
	}
}

// Deadline is the time (ns, not negative) of the next question about a key. The zero Deadline is due. The two lowest
// bits hold a note of the user, so that the memory of a key needs no field for it.
type Deadline int64

const noteBits = 3

// Note returns the note, 0 to 3.
func (d Deadline) Note() uint8 { return uint8(d & noteBits) }

// With returns the deadline with another note, 0 to 3.
func (d Deadline) With(note uint8) Deadline { return d&^noteBits | Deadline(note) }

// Void returns a deadline with the same note, and due.
func (d Deadline) Void() Deadline { return d & noteBits }

// At returns the time (ns) at which the question is due.
func (d Deadline) At() int64 { return int64(d &^ noteBits) }

// Due reports whether the time has come.
func (d Deadline) Due(now int64) bool { return d.At() <= now }

// Next returns the deadline after a question that is asked at now (ns): half to the whole of a valid LimitRefresh
// later. The time is random, so that keys that were asked about together do not stay together. It has no note, and is
// not zero.
func Next(every time.Duration, now int64) Deadline {
	if every == 0 {
		every = Default
	}
	half := int64(every) / 2
	after := half + rand.Int64N(int64(every)-half) + 1
	if after > math.MaxInt64-now {
		return math.MaxInt64 &^ noteBits
	}
	return Deadline(now+after) &^ noteBits
}
