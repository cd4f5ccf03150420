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

// turns identifies places in a queue by the position of its tail, in sub-units, before and after they were taken.
type turns struct {
	tail int64
	gaps []turn // cancelled places with other places behind them; in order, at most Burst
}

type turn struct{ from, to int64 }

// served returns the rest of used sub-units after elapsed ns.
func (p *plan) served(used int64, elapsed time.Duration) int64 {
	if int64(elapsed) >= p.serve(used) {
		return 0
	}
	return used - int64(elapsed)*p.refill
}

// serve returns the time in which x sub-units are served, in ns, rounded up.
func (p *plan) serve(x int64) int64 {
	if x <= 0 {
		return 0
	}
	return (x + p.refill - 1) / p.refill
}

func (q *queue) advance(p *plan, now time.Duration) {
	q.used, q.last = p.served(q.used, now-q.last), now
	if q.used == 0 {
		q.turns = nil
	}
}

// over returns the sub-units by which n more units would exceed the queue.
func (q *queue) over(p *plan, n int64) int64 { return q.used - (p.burst-n)*p.unit }

func (q *queue) take(p *plan, now time.Duration, n int64) (time.Duration, bool) {
	q.advance(p, now)
	if q.over(p, n) > 0 {
		return 0, false
	}
	delay := time.Duration(p.serve(q.used))
	q.join(n * p.unit)
	return delay, true
}

func (q *queue) decide(p *plan, now time.Duration, n int64) (time.Duration, bool, look) {
	return decideBy(q, p, now, n)
}

func (q *queue) look(p *plan, now time.Duration, n int64) look {
	q.advance(p, now)
	l := look{
		room:  max(0, (p.burst*p.unit-q.used)/p.unit),
		reset: time.Duration(p.serve(q.used)),
	}
	if n > 0 {
		l.retry = time.Duration(p.serve(q.over(p, n)))
	}
	return l
}

// book is take with a bound on the delay: a place in the queue is a booking.
func (q *queue) book(p *plan, now time.Duration, n int64, most time.Duration) booking {
	q.advance(p, now)
	delay := time.Duration(p.serve(q.used))
	retry := time.Duration(p.serve(q.over(p, n)))
	if retry > 0 || delay > most {
		return booking{delay: delay, retry: retry}
	}
	q.join(n * p.unit)
	return booking{delay: delay, ok: true}
}

func (q *queue) charge(p *plan, now time.Duration, n int64) {
	q.advance(p, now)
	floor := 2 * p.burst * p.unit
	if n >= (floor-q.used)/p.unit {
		q.join(max(0, floor-q.used))
		return
	}
	q.join(n * p.unit)
}

func (q *queue) join(subunits int64) {
	q.used += subunits
	if q.turns != nil {
		q.turns.tail += subunits
	}
}

func (q *queue) refund(p *plan, now time.Duration, n int64) float64 {
	q.advance(p, now)
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
	q.advance(p, now)
	if q.turns == nil || q.turns != m.turns { // empty since, or another limit
		return 0
	}
	behind := q.turns.tail - m.tail
	switch mine := (turn{m.tail - n*p.unit, m.tail}); {
	case behind >= q.used: // served
		return 0
	case behind > 0:
		q.turns.gap(mine, q.turns.tail-q.used)
		return 0
	default:
		from := q.turns.close(mine.from)
		q.used -= min(q.used, q.turns.tail-from)
		q.turns.tail = from
		return float64(n)
	}
}

// gap adds a turn that will pass unused, and drops the gaps before front, which have passed.
func (t *turns) gap(g turn, front int64) {
	t.gaps = slices.DeleteFunc(t.gaps, func(old turn) bool { return old.to <= front })
	i := len(t.gaps)
	for i > 0 && t.gaps[i-1].from > g.from {
		i--
	}
	t.gaps = slices.Insert(t.gaps, i, g)
}

// close removes the gaps that end at tail, and returns their begin.
func (t *turns) close(tail int64) int64 {
	for i := len(t.gaps) - 1; i >= 0 && t.gaps[i].to == tail; i-- {
		tail, t.gaps = t.gaps[i].from, t.gaps[:i]
	}
	return tail
}

// longest is the length of the longest possible queue, in sub-units: Validate's bound of 2⁵³ for twice the burst,
// converted from µs to ns.
const longest = 1000 << 53

// change keeps the content of the queue, in units, rounded up. It may exceed the size of a new, shorter queue.
func (q *queue) change(from, to *plan, now time.Duration) {
	q.advance(from, now)
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
