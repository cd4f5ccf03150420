package meter

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Bucket compares the admissions of a token bucket, a leaky bucket or the input of a queue with Burst + rate·t. It does
// not visit all intervals. Instead it runs a bucket that may go into any debt. Its level is the smallest remainder over
// all intervals that end now. So the deepest debt is the largest admitted(s, t] - Burst - rate·(t-s).
//
// Levels are in sub-units·1000, so that the refill of one ns is a whole number.
type Bucket struct {
	limit algo.Bucket
	level int64
	last  int64 // ns
	worst int64 // the deepest debt
}

// NewBucket returns the meter of any bucket. Its times may start anywhere.
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

// Change gives the bucket another limit. Used units stay used: the level stays, but at most at the new burst. The worst
// excess is rounded up to whole sub-units.
func (m *Bucket) Change(at int64, b algo.Bucket) {
	m.fill(at)
	scale := func(x int64) int64 {
		return int64(math.Ceil(float64(x) / 1000 / float64(m.limit.Unit) * float64(b.Unit) * 1000))
	}
	m.level, m.worst, m.limit = min(scale(m.level), b.Cap*1000), scale(m.worst), b
}

// Admit implements Meter.
func (m *Bucket) Admit(at, n int64) {
	m.fill(at)
	m.level -= n * m.limit.Unit * 1000
	m.worst = max(m.worst, -m.level)
}

// Late implements Meter. The time of the admission makes no difference: a bucket that was not full has the refill since
// then anyway.
func (m *Bucket) Late(now, _, n int64) { m.Admit(now, n) }

// Holds implements Meter.
func (m *Bucket) Holds(at, n int64) bool {
	m.fill(at)
	return m.level >= n*m.limit.Unit*1000
}

// Worst returns the excess in sub-units·1000.
func (m *Bucket) Worst() int64 { return m.worst }

// Excess implements Meter.
func (m *Bucket) Excess() float64 { return float64(m.worst) / 1000 / float64(m.limit.Unit) }

// Seen implements Meter. The copy refills from now.
func (m *Bucket) Seen(now int64) Meter {
	c := *m
	c.last = now
	return &c
}

// Depth returns the ns in which the units in a queue, and n more, are served.
func (m *Bucket) Depth(at, n int64) int64 {
	m.fill(at)
	missing := (m.limit.Cap+n*m.limit.Unit)*1000 - m.level
	return (missing + m.limit.Refill - 1) / m.limit.Refill
}

// Output compares the output of a queue with its rate. A call may leave when all calls that left before it have been
// served. The excess is the number of units by which a call left too early.
type Output struct{ queue Bucket }

// NewOutput returns the output meter of a queue.
func NewOutput(b algo.Bucket) *Output {
	b.Cap = 0
	return &Output{*NewBucket(b)}
}

// Leave counts n units that leave at a time not before the last one.
func (o *Output) Leave(at, n int64) {
	o.queue.fill(at)
	o.queue.worst = max(o.queue.worst, -o.queue.level)
	o.queue.level -= n * o.queue.limit.Unit * 1000
}

// Excess returns the largest excess so far, in units.
func (o *Output) Excess() float64 { return o.queue.Excess() }
