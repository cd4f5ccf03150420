package fleet

import "github.com/hybridlimit/hybridlimit/internal/algo"

// meter holds what was admitted of one key against its limit. Instead of
// looking at all intervals it runs a bucket that may go into any debt: its
// level is the least, over all s, of what was left to admit since s, so the
// deepest debt is the largest admitted(s, t] - Burst - rate·(t-s).
//
// Levels are sub-units·1000, so that a ns of refill is a whole number.
type meter struct {
	bucket algo.Bucket
	level  int64
	last   int64 // ns
	worst  int64 // the deepest debt
}

func newMeter(b algo.Bucket) meter { return meter{bucket: b, level: b.Cap * 1000} }

func (m *meter) fill(at int64) {
	d := max(at-m.last, 0)
	if most := m.bucket.Cap * 1000; d > (most-m.level)/m.bucket.Refill {
		m.level = most
	} else {
		m.level += d * m.bucket.Refill
	}
	m.last = max(m.last, at)
}

// admit counts n units at a time not before the last.
func (m *meter) admit(at, n int64) {
	m.fill(at)
	m.level -= n * m.bucket.Unit * 1000
	m.worst = max(m.worst, -m.level)
}

// holds says whether a central bucket, fed with what was admitted, would have
// admitted n more.
func (m *meter) holds(at, n int64) bool {
	m.fill(at)
	return m.level >= n*m.bucket.Unit*1000
}

// excess is the largest so far, in units.
func (m *meter) excess() float64 { return float64(m.worst) / 1000 / float64(m.bucket.Unit) }
