package meter

import "github.com/hybridlimit/hybridlimit/internal/algo"

// Bucket holds a token bucket, a leaky bucket or what enters a queue against
// Burst + rate·t. Instead of looking at all intervals it runs a bucket that may
// go into any debt: its level is the least, over all s, of what was left to
// admit since s, so the deepest debt is the largest admitted(s, t] - Burst -
// rate·(t-s).
//
// Levels are sub-units·1000, so that a ns of refill is a whole number.
type Bucket struct {
	limit algo.Bucket
	level int64
	last  int64 // ns
	worst int64 // the deepest debt
}

// NewBucket is for any bucket. Its times may count from anywhere.
func NewBucket(b algo.Bucket) *Bucket { return &Bucket{limit: b, level: b.Cap * 1000} }

func (m *Bucket) fill(at int64) {
	d := max(at-m.last, 0)
	if most := m.limit.Cap * 1000; d > (most-m.level)/m.limit.Refill {
		m.level = most
	} else {
		m.level += d * m.limit.Refill
	}
	m.last = max(m.last, at)
}

// Admit is for Meter.
func (m *Bucket) Admit(at, n int64) {
	m.fill(at)
	m.level -= n * m.limit.Unit * 1000
	m.worst = max(m.worst, -m.level)
}

// Late is for Meter. What was refilled since then, a bucket that was not full
// has anyway.
func (m *Bucket) Late(now, _, n int64) { m.Admit(now, n) }

// Holds is for Meter.
func (m *Bucket) Holds(at, n int64) bool {
	m.fill(at)
	return m.level >= n*m.limit.Unit*1000
}

// Worst is the excess in sub-units·1000.
func (m *Bucket) Worst() int64 { return m.worst }

// Excess is for Meter.
func (m *Bucket) Excess() float64 { return float64(m.worst) / 1000 / float64(m.limit.Unit) }

// Seen is for Meter: it refills from now.
func (m *Bucket) Seen(now int64) Meter {
	c := *m
	c.last = now
	return &c
}

// Depth is how many ns the units in a queue, and n more, take to be served.
func (m *Bucket) Depth(at, n int64) int64 {
	m.fill(at)
	missing := (m.limit.Cap+n*m.limit.Unit)*1000 - m.level
	return (missing + m.limit.Refill - 1) / m.limit.Refill
}

// Output holds what leaves a queue against its rate: a call may leave when all
// that left before has been served. Its excess is by how many units one came
// too early.
type Output struct{ queue Bucket }

// NewOutput is of a queue.
func NewOutput(b algo.Bucket) *Output {
	b.Cap = 0
	return &Output{*NewBucket(b)}
}

// Leave counts n units that leave, at a time not before the last.
func (o *Output) Leave(at, n int64) {
	o.queue.fill(at)
	o.queue.worst = max(o.queue.worst, -o.queue.level)
	o.queue.level -= n * o.queue.limit.Unit * 1000
}

// Excess is the largest so far, in units.
func (o *Output) Excess() float64 { return o.queue.Excess() }
