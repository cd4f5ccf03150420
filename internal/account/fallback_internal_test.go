package account

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// TestOwedAfterABorder checks that after an outage over the end of a window, units of the new window are owed and those
// of the window before are forgiven, also if a lease has paid for some, and however often a window ends meanwhile.
func TestOwedAfterABorder(t *testing.T) {
	const period = 60 * sec
	window := func(ends int64) Fallback {
		size := fallback.Size{Burst: 100, PerNs: 100.0 / float64(period), Period: period, Ends: ends}
		return Fallback{Size: size, Window: period}
	}
	for _, tc := range []struct {
		name    string
		windows []int64 // units admitted in each window, one after the other
		paid    int64   // units that a lease has paid for
		later   int64   // ns after the last window began
		owed    int64
	}{
		{"one window", []int64{30}, 0, sec, 30},
		{"its end", []int64{30}, 0, period, 0},
		{"two windows", []int64{30, 20}, 0, sec, 20},
		{"three", []int64{30, 20, 7}, 0, sec, 7},
		{"none in the last", []int64{30}, 0, 2 * period, 0},
		{"a lease paid for the old ones", []int64{30, 20}, 30, sec, 0},
		{"a lease paid for some", []int64{30, 20}, 10, sec, 10},
	} {
		for _, known := range []bool{true, false} {
			var o outage
			begin, never := int64(sec), window(0)
			for i, n := range tc.windows {
				f := window(0)
				if begin = sec + int64(i)*period; known {
					f.Ends = begin + period
				}
				o.note(&f, n, begin)
			}
			o.admitted -= tc.paid
			if got := o.settle(&never, begin+tc.later); got != tc.owed {
				t.Errorf("%s, ends known %t: %d units owed, want %d", tc.name, known, got, tc.owed)
			}
			if got := o.settle(&never, begin+tc.later); got != 0 {
				t.Errorf("%s: %d units owed once more", tc.name, got)
			}
		}
	}
}
