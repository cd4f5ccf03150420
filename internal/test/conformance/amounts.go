package conformance

import (
	"math"
	"testing"
)

// burst checks that an unused key holds exactly its burst.
func burst(t *testing.T, spec Spec) {
	for _, size := range []int64{1, 2, 25} {
		s := still(t, spec, size)
		for left := size - 1; left >= 0; left-- {
			res := s.allow("k", 1)
			if !res.Allowed && spec.Exact {
				t.Fatalf("burst %d: denied with %d units left: %+v", size, left+1, res)
			}
			if spec.Exact && res.Remaining != left {
				t.Errorf("burst %d: Remaining is %d, want %d", size, res.Remaining, left)
			}
		}
		denial, _ := s.drain("k")
		if spec.Exact && denial.Remaining != 0 {
			t.Errorf("burst %d: denied with %d remaining", size, denial.Remaining)
		}
		if s.total("k") == 0 {
			t.Errorf("burst %d: no unit was admitted", size)
		}
	}
}

// denials checks that denials do not postpone the next admission of a key.
func denials(t *testing.T, spec Spec) {
	s := lively(t, spec)
	denial, _ := s.drain("k")
	for range 100 {
		res := s.allow("k", 1)
		if res.Allowed { // in real time a unit has refilled, so the last RetryAfter is outdated
			denial, _ = s.drain("k")
			continue
		}
		if spec.Exact && !spec.RetryIsLowerBound && res.RetryAfter > denial.RetryAfter+spec.RetrySlack {
			t.Fatalf("a denial lengthened RetryAfter from %v to %v", denial.RetryAfter, res.RetryAfter)
		}
		denial = res
	}
	s.await("k", 1, denial)
}

// allOrNone checks that a cost is granted as a whole or not at all, and that a denial leaves the units to smaller
// costs.
func allOrNone(t *testing.T, spec Spec) {
	s := still(t, spec, 10)
	steps := []struct {
		n         int64
		allowed   bool
		remaining int64
	}{
		{7, true, 3},
		{4, false, 3},
		{10, false, 3},
		{3, true, 0},
		{1, false, 0},
	}
	for i, step := range steps {
		res := s.allow("k", step.n)
		if spec.Exact && (res.Allowed != step.allowed || res.Remaining != step.remaining) {
			t.Fatalf("step %d, cost %d: %+v, want allowed %v and %d remaining", i, step.n, res, step.allowed, step.remaining)
		}
	}
	if res := s.allow("whole", 10); spec.Exact && !res.Allowed {
		t.Errorf("a call for the whole burst was denied: %+v", res)
	}
}

// aboveBurst checks that a cost above the burst is denied with Never and changes nothing.
func aboveBurst(t *testing.T, spec Spec) {
	s := still(t, spec, 10)
	for _, n := range []int64{11, 1 << 31, 1 << 32, 1<<32 + 1, 1<<53 + 1, math.MaxInt64} {
		if res := s.allow("k", n); res.Allowed {
			t.Errorf("cost %d of a burst of 10 was admitted: %+v", n, res)
		}
	}
	s.full("k", "calls above the burst take nothing")
	if res := s.allow("k", 11); res.Allowed {
		t.Errorf("a cost above the burst was admitted when no unit was left: %+v", res)
	}
}
