// Package refresh decides when Config.LimitFor is asked again about a key. It keeps 14 bits for a key, which fit into the
// padding of an entry.
package refresh

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

const (
	// Default is the interval for a LimitRefresh of 0.
	Default = time.Minute
	// Shortest is the shortest interval: a budget of hybrid may end up to two ticks of 5 ms late.
	Shortest = 10 * time.Millisecond
)

// Check adds a violation if a Config may not have this LimitRefresh.
func Check(bad *hybridlimit.Violations, every time.Duration) {
	switch {
	case every < 0:
		bad.Add("Config.LimitRefresh", every, "must not be negative; hybridlimit.Never means never")
	case every != 0 && every < Shortest:
		bad.Add("Config.LimitRefresh", every, fmt.Sprintf("must be at least %v, or 0 for %v", Shortest, Default))
	}
}

// Mark is the time of the next question about a key, as a number of units since time 0. The numbers wrap around. The zero Mark
// is due. The upper two bits hold a note of the user.
type Mark uint16

const (
	timeBits = 14
	round    = 1<<timeBits - 1 // the number of different times of a mark; 0 is none of them
)

// Note returns the note, 0 to 3.
func (m Mark) Note() uint8 { return uint8(m >> timeBits) }

// With returns the mark with another note, 0 to 3.
func (m Mark) With(note uint8) Mark { return m&round | Mark(note)<<timeBits }

// Void returns the mark with the same note, and due.
func (m Mark) Void() Mark { return m &^ round }

// Rule is the LimitRefresh of a limiter. A question is due when half to the whole of it has passed since the last one. The time
// is random, so that keys that were asked about together do not stay together.
type Rule struct {
	unit int64 // ns
	most int64 // units: the whole of LimitRefresh
}

// parts is the number of units in an interval, unless they would be shorter than minUnit. More parts spread keys more evenly, and
// marks wrap around sooner.
const (
	parts   = 512
	minUnit = int64(5 * time.Millisecond)
)

// New returns the rule of a valid LimitRefresh.
func New(every time.Duration) Rule {
	if every == 0 {
		every = Default
	}
	unit := max(int64(every)/parts, minUnit)
	return Rule{unit: unit, most: int64(every) / unit}
}

// Next returns the mark of a question that is asked at now (ns, not negative). It has no note.
func (r Rule) Next(now int64) Mark {
	half := r.most / 2
	return Mark((now/r.unit+half+rand.Int64N(r.most-half)+1)%round + 1)
}

// left returns the units until the mark's time: 0 or less if it has come.
func (r Rule) left(m Mark, now int64) int64 {
	left := (int64(m&round) - 1 - now/r.unit%round + round) % round
	if left > r.most {
		left -= round
	}
	return left
}

// Due reports whether the time of a mark has come. A due mark must be replaced, by Next or Void, within Wraps: after that it can
// look like a mark of the future.
func (r Rule) Due(m Mark, now int64) bool { return m&round == 0 || r.left(m, now) <= 0 }

// At returns the time (ns) at which the mark is due: at most now if it is due.
func (r Rule) At(m Mark, now int64) int64 {
	if r.Due(m, now) {
		return now
	}
	return (now/r.unit + r.left(m, now)) * r.unit
}

// Wraps returns the time (ns) for which a due mark stays due.
func (r Rule) Wraps() int64 {
	left := round - r.most - 1
	if left > (1<<63-1)/r.unit {
		return 1<<63 - 1
	}
	return left * r.unit
}
