package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// retryAfter checks that a call is admitted after its RetryAfter, and denied before it. This holds for an exact
// RetryAfter and for a lower bound.
func retryAfter(t *testing.T, spec Spec) {
	s := lively(t, spec)
	slack := max(s.spec.Tick, spec.RetrySlack)
	for _, n := range []int64{1, 3, 5, 1, 2, 4} {
		s.drain("k")
		asked := time.Now()
		res := s.allow("k", n)
		if wait := res.RetryAfter; !res.Allowed && wait > slack {
			s.spec.Sleep(wait - slack)
			res = s.allow("k", n)
			// A late sleep, or a slow answer, proves nothing.
			if took := time.Since(asked); res.Allowed && took <= wait-slack {
				t.Errorf("cost %d was admitted after %v, before its RetryAfter of %v", n, took, wait)
			}
		}
		s.await("k", n, res)
		s.spec.Sleep(7 * time.Millisecond) // starts the next round at another part of a unit or window
	}
}

// refill checks that units come back at the rate: not slower if the limiter is exact, and never faster, because every
// answer is compared with most.
func refill(t *testing.T, spec Spec) {
	s := lively(t, spec)
	s.drain("k")
	slept := time.Duration(0)
	for _, d := range []time.Duration{20, 30, 1, 9, 40, 100, 7, 13} {
		d *= time.Millisecond
		// A log records admissions of one moment a tick apart.
		s.spec.Sleep(d + time.Duration(s.limit.BurstSize())*s.spec.Tick)
		slept += d
		s.drain("k")
		if want := s.least(max(0, slept-spec.Lag)); spec.Exact && s.total("k") < want {
			t.Errorf("%d units admitted after sleeping %v, want %d", s.total("k"), slept, want)
		}
	}
	for range 2 {
		s.spec.Sleep(s.fresh())
		s.full("k", "the key had the time to become full")
	}
}

// resetAfter checks that a key is full at its ResetAfter, and not a tick before.
func resetAfter(t *testing.T, spec Spec) {
	s := lively(t, spec)
	for _, n := range []int64{1, 2, 5} {
		res := s.allow("k", n)
		if spec.Exact && res.ResetAfter == 0 {
			t.Errorf("ResetAfter is 0 after taking %d units: %+v", n, res)
		}
		most := s.limit.TimeToFull() + clockSlack
		if s.limit.Algorithm == hybridlimit.AlgSlidingWindow { // units count in the next window too
			most = s.fresh()
		}
		if spec.Exact && res.ResetAfter > most {
			t.Errorf("ResetAfter is %v, want at most %v", res.ResetAfter, most)
		}
		s.untilReset("k", res)
		s.spec.Sleep(s.fresh())
	}
	// The same holds for a denial, and for a Peek in the middle of the next period.
	s.drain("k")
	res := s.allow("k", 1)
	if !spec.partial && !res.Allowed {
		s.spec.Sleep(s.limit.TimeToFull() * 5 / 4)
		var err error
		if res, err = s.lim.Peek(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if s.spec.ForgetsWindow {
		s.await("k", 1, s.allow("k", 1))
		return
	}
	s.untilReset("k", res)
}

// resetInDebt checks the ResetAfter of a key in debt: the debt is paid first, so the key is full later than without a
// debt.
func resetInDebt(t *testing.T, spec Spec) {
	s := lively(t, spec)
	for _, verb := range []string{"charge", "denial", "at most", "peek"} {
		began := time.Now()
		s.drain(verb)
		charged := time.Now()
		res, err := s.lim.Charge(context.Background(), verb, 4)
		if err != nil {
			t.Fatal(err)
		}
		// Before paid, no unit can have come back. An admission after it, because of a slow answer or the end of a
		// window, proves nothing.
		paid := charged.Add(res.ResetAfter - s.limit.TimeToFull())
		if s.limit.Algorithm == hybridlimit.AlgSlidingLog {
			paid = began.Add(s.limit.Period)
		}
		switch verb {
		case "denial":
			for range 2 { // the first call may wait for Redis, the second does not
				if res = s.allow(verb, 1); res.Allowed && !time.Now().After(paid) {
					t.Errorf("admitted in debt: %+v", res)
				}
			}
		case "at most":
			res = s.atMost(verb, 3)
		case "peek":
			if res, err = s.lim.Peek(context.Background(), verb); err != nil {
				t.Fatal(err)
			}
		}
		s.untilReset(verb, res)
	}
}

// untilReset fails unless the key has a whole burst after the ResetAfter of an answer. If the limiter is exact, it also
// fails if the key has a whole burst a tick earlier.
func (s *subject) untilReset(key string, res hybridlimit.Result) {
	s.t.Helper()
	wait := res.ResetAfter
	if s.spec.Exact && wait > s.spec.Tick {
		said := time.Now()
		s.spec.Sleep(wait - s.spec.Tick)
		early := s.allow(key, s.limit.BurstSize())
		// A late sleep, or a slow answer, proves nothing.
		if took := time.Since(said); early.Allowed && took <= wait-s.spec.Tick {
			s.t.Errorf("key %q was full after %v, before its ResetAfter of %v: %+v", key, took, wait, res)
		}
		if early.Allowed {
			return
		}
		wait = s.spec.Tick
	}
	s.spec.Sleep(wait)
	whole := s.allow(key, s.limit.BurstSize())
	if s.spec.Exact && (!whole.Allowed || whole.Delay > 0) {
		s.t.Errorf("key %q has no whole burst after its ResetAfter: %+v; the answer with the ResetAfter: %+v", key, whole, res)
	}
	if !whole.Allowed {
		s.await(key, s.limit.BurstSize(), whole)
	}
}

// windowEnds checks that all answers within a fixed window give the same end, for any verb, key and decision. The
// ResetAfter of a key in debt is the end of the window in which the debt is paid (see resetInDebt).
func windowEnds(t *testing.T, spec Spec) {
	s := newSubject(t, spec, 5, time.Second, 5)
	if s.limit.Algorithm != hybridlimit.AlgFixedWindow {
		return
	}
	ctx := context.Background()
	s.allow("k", 1)           // hybrid does not know the window before it has asked Redis
	var first, last time.Time // by the first answer, the end is between these
	var step time.Duration
	slack := max(s.spec.Tick, spec.WindowSlack)
	// ResetAfter of an answer counts from an unknown moment of the call. So the end is between begin + ResetAfter and
	// now + ResetAfter, however long the call took.
	named := func(verb string, ask func() (hybridlimit.Result, error)) {
		t.Helper()
		begin := time.Now()
		res, err := ask()
		now := time.Now()
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		// The next window may have begun, in which the key is unused. A limiter that asked Redis counts the end from
		// the time at which it sent the message. So it may see the end early, by the duration of the call.
		if !first.IsZero() && !now.Add(now.Sub(begin)).Before(first) {
			return
		}
		if res.ResetAfter <= 0 || res.ResetAfter > s.limit.Period {
			t.Fatalf("%s: %+v: a window of %v", verb, res, s.limit.Period)
		}
		from, to := begin.Add(res.ResetAfter), now.Add(res.ResetAfter)
		switch {
		case first.IsZero():
			first, last, step = from, to, res.ResetAfter/12
		case from.Sub(last) > slack || first.Sub(to) > slack:
			t.Errorf("%s, which took %v: %+v: by the first answer, the window ends in %v to %v",
				verb, now.Sub(begin), res, first.Sub(now), last.Sub(now))
		}
		s.spec.Sleep(step)
	}
	for i, key := range []string{"k", "k", "other", "other"} {
		named("AllowN", func() (hybridlimit.Result, error) { return s.lim.AllowN(ctx, key, 1+int64(i)) })
	}
	if spec.partial {
		return
	}
	named("Charge", func() (hybridlimit.Result, error) { return s.lim.Charge(ctx, "charged", 5) })
	named("AllowN after Charge", func() (hybridlimit.Result, error) { return s.lim.AllowN(ctx, "charged", 1) })
	named("Peek", func() (hybridlimit.Result, error) { return s.lim.Peek(ctx, "k") })
	named("AllowAtMost", func() (hybridlimit.Result, error) { return s.lim.AllowAtMost(ctx, "other", 9) })
}
