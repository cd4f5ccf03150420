package local

import (
	"slices"
	"time"
)

// queue is the state of a leaky bucket as a queue: the sub-units in it, and the time at which they were counted. It is
// the virtual scheduling form of ITU-T I.371's generic cell rate algorithm, with next_free = last + used/refill. A call
// starts when the units before it have been served.
//
// It counts in sub-units: with g = gcd(Rate, Period in ns), a unit is Period/g sub-units, and Rate/g sub-units are
// served per ns. So only waits are rounded: up to whole ns. With the bound of Validate (2·Burst·Period/g + Rate/g ≤ 2⁵³
// with the period in µs), counts stay below 2⁶³.
type queue struct {
	used  int64 // sub-units not served yet at last, up to twice Burst in debt
	last  time.Duration
	turns *turns // from the first reservation until the queue is empty
}

// left returns the rest of used sub-units after elapsed ns.
func (p *plan) left(used int64, elapsed time.Duration) int64 {
	if elapsed >= p.serve(used) {
		return 0
	}
	return used - int64(elapsed)*p.refill
}

// serve returns the time in which x sub-units are served, rounded up.
func (p *plan) serve(x int64) time.Duration {
	if x <= 0 {
		return 0
	}
	return time.Duration((x + p.refill - 1) / p.refill)
}

func (q *queue) advance(p *plan, now time.Duration) {
	q.used, q.last = p.left(q.used, now-q.last), now
	if q.used == 0 {
		q.turns = nil
	}
}

// over returns the sub-units by which n more units would exceed the queue.
func (q *queue) over(p *plan, n int64) int64 { return q.used - (p.burst-n)*p.unit }

func (q *queue) look(p *plan, now time.Duration, n int64) look {
	l := look{room: max(0, (p.burst*p.unit-q.used)/p.unit), reset: p.serve(q.used)}
	if n > 0 {
		l.retry = p.serve(q.over(p, n))
	}
	return l
}

// take takes a place in the queue.
func (q *queue) take(p *plan, now time.Duration, n int64, most time.Duration) booking {
	b := booking{delay: p.serve(q.used), retry: p.serve(q.over(p, n))}
	if b.ok = b.retry == 0 && b.delay <= most; b.ok {
		q.join(n * p.unit)
	}
	return b
}

func (q *queue) charge(p *plan, now time.Duration, n int64) {
	most := max(0, 2*p.burst*p.unit-q.used)
	if n < most/p.unit {
		most = n * p.unit
	}
	q.join(most)
}

func (q *queue) join(subunits int64) {
	q.used += subunits
	if q.turns != nil {
		q.turns.tail += subunits
	}
}

func (q *queue) refund(p *plan, now time.Duration, n int64) float64 {
	if n > q.used/p.unit {
		all := float64(q.used) / float64(p.unit)
		q.used = 0
		return all
	}
	q.used -= n * p.unit
	return float64(n)
}

func (q *queue) mark(_ *plan, now time.Duration) mark {
	if q.turns == nil {
		q.turns = new(turns)
	}
	return mark{at: now, turns: q.turns, tail: q.turns.tail}
}

// undo removes the place if it is the last one. Otherwise a new call in the place could start together with an earlier
// one, which a queue must prevent. So the place becomes a gap, which passes unused unless all places behind it are
// cancelled too.
func (q *queue) undo(p *plan, now time.Duration, m mark, _ float64, n int64) float64 {
	if q.turns == nil || q.turns != m.turns { // empty since, or another limit
		return 0
	}
	t, front := q.turns, q.turns.tail-q.used
	switch {
	case m.tail <= front: // served
		return 0
	case m.tail < t.tail:
		t.gaps = slices.DeleteFunc(t.gaps, func(g gap) bool { return g.to <= front })
		t.gaps.add(gap{from: m.tail - n*p.unit, to: m.tail})
		return 0
	}
	t.tail, _ = t.gaps.close(m.tail - n*p.unit)
	q.used = max(0, t.tail-front)
	return float64(n)
}

// longest is the length of the longest possible queue, in sub-units: Validate's bound of 2⁵³ for twice the burst,
// converted from µs to ns.
const longest = 1000 << 53

// change keeps the content of the queue, in units, rounded up. It may exceed the size of a new, shorter queue.
func (q *queue) change(from, to *plan, now time.Duration) {
	q.turns = nil // they are in the old sub-units
	whole, part := q.used/from.unit, q.used%from.unit
	if most := longest / to.unit; whole >= most {
		q.used = most * to.unit
		return
	}
	scaled, rest := mulDiv(part, to.unit, from.unit)
	if rest > 0 {
		scaled++
	}
	q.used = whole*to.unit + scaled
}
