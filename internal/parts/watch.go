package parts

import "time"

const (
	// window is the time (ns) over which the units of a key count.
	window = int64(5 * time.Second)
	// A process may look for another part after a window in which its part has refused one unit in refusedPart.
	refusedPart = 20
	// After each window, about looks processes of a part look. The probability of each is at most looksAt: otherwise
	// all would leave a full part for the same free one. A process with much of the use of the part is more likely to
	// look, because its move changes more.
	looks   = 2.0
	looksAt = 0.25
	// worthPart is the part of a burst that must be left in another part.
	worthPart = 4
)

// Watch counts the recent use of a key by a process. Times are in ns of any clock that does not go back.
type Watch struct{ since, units, refused int64 }

// NewWatch returns a Watch that begins now.
func NewWatch(now int64) Watch { return Watch{since: now} }

// Count notes units that the part of the process has admitted or refused.
func (w *Watch) Count(units int64, refused bool) {
	w.units += units
	if refused {
		w.refused += units
	}
}

// Over reports whether the time is over in which the units count together.
func (w *Watch) Over(now int64) bool { return now-w.since >= window }

// Look returns another part, at which the process should look now; ok is false if it should look at none. perNs is the
// rate of its part p, in units. n is the number of processes of the key. draw returns a random number of [0, 1).
func (w *Watch) Look(p Part, perNs float64, n int64, draw func() float64, now int64) (to Part, ok bool) {
	if !w.Over(now) {
		return p, false
	}
	passed, admitted := now-w.since, float64(w.units-w.refused)
	use := max(admitted/(perNs*float64(passed)), 1/float64(p.Among(n))) // of the part
	refused := w.refused > 0 && w.refused*refusedPart >= w.units
	*w = NewWatch(now)
	if !refused || draw() >= min(looksAt, looks*use) {
		return p, false
	}
	return p.next(1 + int(draw()*float64(p.Of-1))), true
}

// next returns another part. step is 1 to Of-1.
func (p Part) next(step int) Part {
	p.Nth = uint16((int(p.Nth)-1+step)%int(p.Of)) + 1
	return p
}

// Worth reports whether a part with so many units left, and so large a burst, is worth a move.
func Worth(left, burst int64) bool { return left >= max(1, burst/worthPart) }
