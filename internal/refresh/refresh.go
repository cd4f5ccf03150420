// Package refresh decides when Config.LimitFor is asked again about a key. It keeps 14 bits for a key, which fit into the
// padding of an entry.
package refresh

import (
	"fmt"
	"math"
	"math/bits"
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
	mask     = 1<<timeBits - 1
)

// Note returns the note, 0 to 3.
func (m Mark) Note() uint8 { return uint8(m >> timeBits) }

// With returns the mark with another note, 0 to 3.
func (m Mark) With(note uint8) Mark { return m&mask | Mark(note)<<timeBits }

// Void returns the mark with the same note, and due.
func (m Mark) Void() Mark { return m &^ mask }

// Rule is the LimitRefresh of a limiter. A question is due when half to the whole of it has passed since the last one. The time
// is random, so that keys that were asked about together do not stay together.
type Rule struct {
	shift uint8 // a unit is 2^shift ns
	most  int64 // units: the whole of LimitRefresh
}

const (
	// parts is the least number of units in an interval, unless they would be shorter than 2^minShift ns (4 ms). There are less
	// than twice as many. More parts spread keys more evenly, and marks wrap around sooner.
	parts    = 512
	minShift = 22
)

// New returns the rule of a valid LimitRefresh.
func New(every time.Duration) Rule {
	if every == 0 {
		every = Default
	}
	shift := max(minShift, bits.Len64(uint64(every)/parts)-1)
	return Rule{shift: uint8(shift), most: int64(every) >> shift}
}

// Next returns the mark of a question that is asked at now (ns, not negative). It has no note.
func (r Rule) Next(now int64) Mark {
	half := r.most / 2
	m := Mark(now>>r.shift+half+rand.Int64N(r.most-half)+1) & mask
	if m == 0 {
		m = mask // one unit earlier
	}
	return m
}

// left returns the units until the mark's time: 0 or less if it has come.
func (r Rule) left(m Mark, now int64) int64 {
	left := (int64(m) - now>>r.shift) & mask
	if left > r.most {
		left -= mask + 1
	}
	return left
}

// Due reports whether the time of a mark has come. A due mark must be replaced, by Next or Void, within Wraps: after that it can
// look like a mark of the future.
func (r Rule) Due(m Mark, now int64) bool { return m&mask == 0 || r.left(m, now) <= 0 }

// At returns the time (ns) at which the mark is due: at most now if it is due.
func (r Rule) At(m Mark, now int64) int64 {
	if r.Due(m, now) {
		return now
	}
	return (now>>r.shift + r.left(m, now)) << r.shift
}

// Wraps returns the time (ns) for which a due mark stays due.
func (r Rule) Wraps() int64 {
	left := mask - r.most - 1
	if left > math.MaxInt64>>r.shift {
		return math.MaxInt64
	}
	return left << r.shift
}
