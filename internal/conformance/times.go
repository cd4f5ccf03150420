package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// RetryAfter leads to an admission, and not too late: nobody is admitted before
// it, wherever it is exact or a lower bound.
func retryAfter(t *testing.T, spec Spec) {
	s := lively(t, spec)
	for _, n := range []int64{1, 3, 5, 1, 2, 4} {
		s.drain("k")
		asked := time.Now()
		res := s.allow("k", n)
		if wait := res.RetryAfter; !res.Allowed {
			s.spec.Sleep(wait - s.spec.Tick)
			res = s.allow("k", n)
			// A late sleep, or a slow answer, proves nothing.
			if took := time.Since(asked); res.Allowed && took <= wait-s.spec.Tick {
				t.Errorf("cost %d was admitted after %v, RetryAfter had said %v", n, took, wait)
			}
		}
		s.await("k", n, res)
		s.spec.Sleep(7 * time.Millisecond) // another part of the next unit, or window
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
		// A log keeps admissions of one moment a tick apart.
		s.spec.Sleep(d + time.Duration(s.limit.BurstSize())*s.spec.Tick)
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

// After ResetAfter a key is as if never used, and not a tick before; before
// anything was used, it is 0 or soon is.
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
		s.untilReset("k", res)
		s.spec.Sleep(s.fresh())
	}
	// A denial says so, too, and so does a peek in the middle of the next period.
	s.drain("k")
	res := s.allow("k", 1)
	if l, ok := s.lim.(peeker); ok && !res.Allowed {
		s.spec.Sleep(s.limit.TimeToFull() * 5 / 4)
		var err error
		if res, err = l.Peek(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	s.untilReset("k", res)
}

// What is owed comes first: a key in debt resets later than an empty one.
func resetInDebt(t *testing.T, spec Spec) {
	s := lively(t, spec)
	l, ok := s.lim.(charger)
	if !ok {
		return
	}
	for _, verb := range []string{"charge", "denial", "at most", "peek"} {
		began := time.Now()
		s.drain(verb)
		charged := time.Now()
		res, err := l.Charge(context.Background(), verb, 4)
		if err != nil {
			t.Fatal(err)
		}
		// Until then nothing can have come back: what has, after a slow answer or
		// the end of a window, proves nothing.
		paid := charged.Add(res.ResetAfter - s.limit.TimeToFull())
		if s.limit.Algorithm == hybridlimit.AlgSlidingLog {
			paid = began.Add(s.limit.Period)
		}
		p, peeks := s.lim.(peeker)
		some, takes := s.lim.(atMoster)
		switch {
		case verb == "denial":
			for range 2 { // where the first one waits for Redis, the second does not
				if res = s.allow(verb, 1); res.Allowed && !time.Now().After(paid) {
					t.Errorf("admitted in debt: %+v", res)
				}
			}
		case verb == "at most" && takes:
			res = s.atMost(some, verb, 3)
		case verb == "peek" && peeks:
			if res, err = p.Peek(context.Background(), verb); err != nil {
				t.Fatal(err)
			}
		}
		s.untilReset(verb, res)
	}
}

// untilReset fails unless the key has a whole burst when an answer's ResetAfter
// has passed, and, where that is exact, has not a tick before.
func (s *subject) untilReset(key string, res hybridlimit.Result) {
	s.t.Helper()
	wait := res.ResetAfter
	if s.spec.Exact && wait > s.spec.Tick {
		said := time.Now()
		s.spec.Sleep(wait - s.spec.Tick)
		early := s.allow(key, s.limit.BurstSize())
		// A late sleep, or a slow answer, proves nothing.
		if took := time.Since(said); early.Allowed && took <= wait-s.spec.Tick {
			s.t.Errorf("key %q was as if never used after %v, ResetAfter had said %v: %+v", key, took, wait, res)
		}
		if early.Allowed {
			return
		}
		wait = s.spec.Tick
	}
	s.spec.Sleep(wait)
	whole := s.allow(key, s.limit.BurstSize())
	if s.spec.Exact && (!whole.Allowed || whole.Delay > 0) {
		s.t.Errorf("key %q: %+v: no whole burst after the ResetAfter of %+v", key, whole, res)
	}
	if !whole.Allowed {
		s.await(key, s.limit.BurstSize(), whole)
	}
}

// A fixed window ends when it ends: every answer in it names the same instant,
// whichever the verb, the key and the decision. (In debt it is the end of the
// window in which that is paid: resetInDebt.)
func windowEnds(t *testing.T, spec Spec) {
	s := newSubject(t, spec, 5, time.Second, 5)
	if s.limit.Algorithm != hybridlimit.AlgFixedWindow {
		return
	}
	ctx := context.Background()
	s.allow("k", 1)           // of hybrid: until Redis was asked, nobody knows
	var first, last time.Time // the end lies between, by the first answer
	var step time.Duration
	slack := max(s.spec.Tick, spec.WindowSlack)
	// An answer that counted from some moment of its call names an end between
	// the call's begin and its return, plus ResetAfter: however long it took.
	named := func(verb string, ask func() (hybridlimit.Result, error)) {
		t.Helper()
		begin := time.Now()
		res, err := ask()
		now := time.Now()
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		// By then it may be the next window, in which the key is as if never used. A limiter that asked Redis counts the end from when
		// the question left, so that it may see it early by as long as the answer took.
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
			t.Errorf("%s, which took %v: %+v: the window ends in %v to %v, the first answer said",
				verb, now.Sub(begin), res, first.Sub(now), last.Sub(now))
		}
		s.spec.Sleep(step)
	}
	for i, key := range []string{"k", "k", "other", "other"} {
		named("AllowN", func() (hybridlimit.Result, error) { return s.lim.AllowN(ctx, key, 1+int64(i)) })
	}
	if l, ok := s.lim.(charger); ok {
		named("Charge", func() (hybridlimit.Result, error) { return l.Charge(ctx, "charged", 5) })
		named("AllowN of what is charged", func() (hybridlimit.Result, error) { return s.lim.AllowN(ctx, "charged", 1) })
	}
	if l, ok := s.lim.(peeker); ok {
		named("Peek", func() (hybridlimit.Result, error) { return l.Peek(ctx, "k") })
	}
	if l, ok := s.lim.(atMoster); ok {
		named("AllowAtMost", func() (hybridlimit.Result, error) { return l.AllowAtMost(ctx, "other", 9) })
	}
}
