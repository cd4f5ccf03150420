package fallback_test

import (
	"math"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// TestDebit takes units that were used without asking. A bucket goes into debt, of one burst at most, and a window has
// nothing left until its border. Take and Left go on from there.
func TestDebit(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  fallback.Size
		take  int64
		debit []int64
		left  float64 // after the debits
		then  float64 // 3 s later
	}{
		{"a bucket has enough", bucket(1, 10), 0, []int64{4}, 6, 9},
		{"a bucket with a debt", bucket(1, 10), 3, []int64{12}, -5, -2},
		{"the debt is one burst", bucket(1, 10), 0, []int64{1000}, -10, -7},
		{"all debts together", bucket(1, 10), 10, []int64{6, 6, 6}, -10, -7},
		{"more than an int32", bucket(1, 10), 0, []int64{math.MaxInt64}, -10, -7},
		{"a window", fallback.Size{Burst: 10, PerNs: 1e-9, Period: 10 * sec, Ends: 105 * sec}, 3, []int64{4}, 3, 3},
		{"a used window", fallback.Size{Burst: 10, PerNs: 1e-9, Period: 10 * sec, Ends: 105 * sec}, 3, []int64{40, 40}, 0, 0},
		{"the next window", fallback.Size{Burst: 10, PerNs: 1e-9, Period: 10 * sec, Ends: 102 * sec}, 3, []int64{40}, 0, 10},
	} {
		h, now := fallback.New(1), 100*sec
		if c.take > 0 && !h.Take("k", c.size, c.take, now) {
			t.Fatal(c.name)
		}
		for _, n := range c.debit {
			h.Debit("k", c.size, n, now)
		}
		if got := h.Left("k", c.size, now); math.Abs(got-c.left) > 1e-6 {
			t.Errorf("%s: %g units, want %g", c.name, got, c.left)
		}
		now += 3 * sec
		if got := h.Left("k", c.size, now); math.Abs(got-c.then) > 1e-6 {
			t.Errorf("%s: then %g units, want %g", c.name, got, c.then)
		}
		if ok := h.Take("k", c.size, 1, now); ok != (c.then >= 1) {
			t.Errorf("%s: one unit of %g is taken: %t", c.name, c.then, ok)
		}
	}
	h := fallback.New(1)
	h.Debit("k", bucket(1, 10), 20, 100*sec)
	if wait := h.Wait("k", bucket(1, 10), 1, 100*sec); wait < 11*sec || wait > 11*sec+1e6 {
		t.Errorf("one unit comes after %d ns, want 11 s", wait)
	}
}
