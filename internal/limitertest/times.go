package limitertest

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// RetryAfter leads to an admission, and where it is exact, not too late.
func retryAfter(t *testing.T, spec Spec) {
	s := lively(t, spec)
	for _, n := range []int64{1, 3, 5, 1} {
		s.drain("k")
		asked := time.Now()
		res := s.allow("k", n)
		if spec.Exact && !spec.RetryIsLowerBound && !res.Allowed {
			// 10 µs before: many ticks of any limiter's clock.
			const early = 10 * time.Microsecond
			wait := res.RetryAfter
			s.spec.Sleep(wait - early)
			res = s.allow("k", n)
			// A late sleep, or a slow answer, proves nothing.
			if took := time.Since(asked); res.Allowed && took < wait-early/2 {
				t.Errorf("cost %d was admitted after %v, RetryAfter had said %v", n, took, wait)
			}
		}
		s.await("k", n, res)
	}
}

// Units come back at the rate: no slower (Exact), and never faster (every
// answer is held against most).
func refill(t *testing.T, spec Spec) {
	s := lively(t, spec)
	s.drain("k")
	slept := time.Duration(0)
	for _, d := range []time.Duration{20, 30, 1, 9, 40, 100, 7, 13} {
		d *= time.Millisecond
		s.spec.Sleep(d)
		slept += d
		s.drain("k")
		if want := s.least(slept); spec.Exact && s.total("k") < want {
			t.Errorf("%d units admitted after sleeping %v, want %d", s.total("k"), slept, want)
		}
	}
	for range 2 {
		s.spec.Sleep(s.fresh())
		s.full("k", "it slept until it was full")
	}
}

// After ResetAfter a key is as if never used; before anything was used, it is 0
// or soon is.
func resetAfter(t *testing.T, spec Spec) {
	s := lively(t, spec)
	for _, n := range []int64{1, 2, 5} {
		res := s.allow("k", n)
		if spec.Exact && res.ResetAfter == 0 {
			t.Errorf("a key is as if never used after taking %d: %+v", n, res)
		}
		most := s.limit.TimeToFull() + clockSlack
		if s.limit.Algorithm == hybridlimit.AlgSlidingWindow { // counts in the next window, too
			most = s.fresh()
		}
		if spec.Exact && res.ResetAfter > most {
			t.Errorf("ResetAfter is %v, filling takes %v", res.ResetAfter, most)
		}
		if spec.Exact {
			s.spec.Sleep(res.ResetAfter)
		} else {
			s.spec.Sleep(s.fresh())
		}
		s.full("k", "it slept for ResetAfter")
		s.spec.Sleep(s.fresh())
	}
}
