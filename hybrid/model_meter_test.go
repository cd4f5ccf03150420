package hybrid

import (
	"cmp"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// meter notes what was admitted when, in any order.
type meter struct {
	spent []spent
	total int64
}

type spent struct{ at, n int64 } // ns, units

func (m *meter) admit(at, n int64) {
	if n > 0 {
		m.spent, m.total = append(m.spent, spent{at, n}), m.total+n
	}
}

// excess is the largest admitted(s, t] - Burst - rate·(t-s) over all s < t, in
// sub-units·1000 so that a ns of refill is a whole number. Instead of looking
// at all pairs it runs a bucket that may go into debt: its level is the least,
// over all s, of what was left to admit since s.
func (m *meter) excess(b algo.Bucket) int64 {
	slices.SortStableFunc(m.spent, func(x, y spent) int { return cmp.Compare(x.at, y.at) })
	level, last, worst := b.Cap*1000, int64(0), int64(0)
	for _, s := range m.spent {
		if d := s.at - last; d > (b.Cap*1000-level)/b.Refill {
			level = b.Cap * 1000
		} else {
			level += d * b.Refill
		}
		last = s.at
		level -= s.n * b.Unit * 1000
		worst = max(worst, -level)
	}
	return worst
}

// units converts what excess returns.
func excessUnits(b algo.Bucket, e int64) float64 { return float64(e) / 1000 / float64(b.Unit) }
