package account

import (
	"cmp"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	meters "github.com/hybridlimit/hybridlimit/internal/test/meter"
)

// meter records the time and the units of admissions, in any order.
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

// excess returns the largest admitted(s, t] - Burst - rate·(t-s) over all s < t, in sub-units·1000, so that the refill of one
// ns is a whole number.
func (m *meter) excess(b algo.Bucket) int64 {
	slices.SortStableFunc(m.spent, func(x, y spent) int { return cmp.Compare(x.at, y.at) })
	run := meters.NewBucket(b)
	for _, s := range m.spent {
		run.Admit(s.at, s.n)
	}
	return run.Worst()
}

// excessUnits converts a result of excess to units.
func excessUnits(b algo.Bucket, e int64) float64 { return float64(e) / 1000 / float64(b.Unit) }
