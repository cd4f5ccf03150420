package conformance

import (
	"math"
	"testing"
)

// A fresh key holds exactly its burst.
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
			t.Errorf("burst %d: not one unit was admitted", size)
		}
	}
}

// However often a key is denied, it is not further from its next admission.
func denials(t *testing.T, spec Spec) {
	s := lively(t, spec)
	denial, _ := s.drain("k")
	for range 100 {
		res := s.allow("k", 1)
		if res.Allowed { // real time went on, and what was said before is void
			denial, _ = s.drain("k")
			continue
		}
		if spec.Exact && !spec.RetryIsLowerBound && res.RetryAfter > denial.RetryAfter {
			t.Fatalf("RetryAfter grew from %v to %v by being denied", denial.RetryAfter, res.RetryAfter)
		}
		denial = res
	}
	s.await("k", 1, denial)
}

// A cost is granted whole or not at all, and a denial leaves what is there to
// smaller ones.
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
		t.Errorf("the whole burst in one call was denied: %+v", res)
	}
}

// A cost that the burst can never hold is denied with Never and changes nothing.
func aboveBurst(t *testing.T, spec Spec) {
	s := still(t, spec, 10)
	for _, n := range []int64{11, 1 << 31, 1 << 32, 1<<32 + 1, 1<<53 + 1, math.MaxInt64} {
		if res := s.allow("k", n); res.Allowed {
			t.Errorf("cost %d of a burst of 10 was admitted: %+v", n, res)
		}
	}
	s.full("k", "calls above the burst take nothing")
	if res := s.allow("k", 11); res.Allowed {
		t.Errorf("admitted above the burst, on an empty bucket: %+v", res)
	}
}
