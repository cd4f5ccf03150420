package local

import "time"

// queue is the state of a leaky bucket as a queue: units in it and when that was
// so. It is the virtual scheduling form of ITU-T I.371's generic cell rate
// algorithm, whose next_free is last + used/refill; a call starts when all that
// is before it has been served.
//
// It counts in sub-units: with g = gcd(Rate, Period in ns), a unit is Period/g
// of them, and Rate/g are served in each ns. So nothing is rounded but waits,
// up to whole ns. Validate's bound (2·Burst·Period/g + Rate/g ≤ 2⁵³ with the
// period in µs) is below 2⁶³ here.
type queue struct {
	used int64 // sub-units not served yet at last, up to twice Burst in debt
	last time.Duration
}

// served is what is left of used sub-units after elapsed ns.
func (p *plan) served(used int64, elapsed time.Duration) int64 {
	if int64(elapsed) >= p.serve(used) {
		return 0
	}
	return used - int64(elapsed)*p.refill
}

// serve is the time in which x sub-units are served, in ns, rounded up.
func (p *plan) serve(x int64) int64 {
	if x <= 0 {
		return 0
	}
	return (x + p.refill - 1) / p.refill
}

func (q *queue) advance(p *plan, now time.Duration) {
	q.used, q.last = p.served(q.used, now-q.last), now
}

// over is by how much n units more would be too long a queue, in sub-units.
func (q *queue) over(p *plan, n int64) int64 { return q.used - (p.burst-n)*p.unit }

func (q *queue) take(p *plan, now time.Duration, n int64) (time.Duration, bool) {
	q.advance(p, now)
	if q.over(p, n) > 0 {
		return 0, false
	}
	delay := time.Duration(p.serve(q.used))
	q.used += n * p.unit
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

// book is take: to stand in the queue is to have booked. However late one joins,
// the start is when all that is there now has been served.
func (q *queue) book(p *plan, now time.Duration, n int64, most time.Duration) booking {
	q.advance(p, now)
	delay := time.Duration(p.serve(q.used))
	retry := time.Duration(p.serve(q.over(p, n)))
	if retry > 0 || delay > most {
		return booking{delay: delay, retry: retry}
	}
	q.used += n * p.unit
	return booking{delay: delay, ok: true}
}

func (q *queue) charge(p *plan, now time.Duration, n int64) {
	q.advance(p, now)
	floor := 2 * p.burst * p.unit
	if n >= (floor-q.used)/p.unit {
		q.used = max(q.used, floor)
		return
	}
	q.used += n * p.unit
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

func (q *queue) mark(p *plan, now time.Duration) mark {
	q.advance(p, now)
	return mark{at: now, used: q.used}
}

// undo leaves the queue if nobody stands behind. Else the turn passes unused:
// whoever came next would start together with one who was told so before, and a
// queue is there to keep them apart.
func (q *queue) undo(p *plan, now time.Duration, m mark, _ float64, n int64) float64 {
	q.advance(p, now)
	if q.used != p.served(m.used, now-m.at) {
		return 0
	}
	return q.refund(p, now, n)
}

// longest is the longest queue there can be, in sub-units: what Validate's bound
// of 2⁵³ for twice the burst comes to in ns.
const longest = 1000 << 53

// change keeps what stands in the queue, in units, rounded up. A shorter queue
// than before may hold more than would be let in.
func (q *queue) change(from, to *plan, now time.Duration) {
	q.advance(from, now)
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
