package conformance

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// remainingHolds checks that exactly the units of Remaining are available after an answer, and that a denied call is
// admitted after its RetryAfter.
func remainingHolds(t *testing.T, spec Spec) {
	if !spec.Exact || spec.RetryIsLowerBound {
		return
	}
	for seed := range uint64(spec.calls(4)) {
		remains(t, spec, seed, 10)
		remains(t, spec, seed, 100)
	}
}

// remains runs remainingHolds on a key of burst units, all of which come back in a second.
func remains(t *testing.T, spec Spec, seed uint64, burst int64) {
	s := newSubject(t, spec, burst, time.Second, burst)
	rng := rand.New(rand.NewPCG(seed, 3))
	for range 25 {
		if !s.spec.real {
			s.spec.Sleep(time.Duration(rng.Int64N(300)) * time.Millisecond)
		}
		n := 1 + rng.Int64N(burst)
		res := s.allow("k", n)
		if !res.Allowed && !s.spec.real {
			if res.Remaining >= n {
				t.Errorf("seed %d: %d units denied, although %d remain: %+v", seed, n, res.Remaining, res)
			}
			if rng.IntN(2) == 0 {
				s.await("k", n, res)
				continue
			}
		}
		left := res.Remaining
		if more := s.allow("k", left+1); more.Allowed {
			if !s.spec.real { // in real time a unit may have come back meanwhile
				t.Errorf("seed %d: %d units admitted, although only %d remained: %+v", seed, left+1, left, res)
			}
			continue
		}
		if left == 0 {
			continue
		}
		split := s.split() > 0
		all := s.allow("k", left)
		// The answer to a sync in flight may bring a lease meanwhile, but none to a refused ask.
		split = split || s.split() > 0
		if all.Allowed {
			continue
		}
		if all.RetryAfter > spec.Lag && !split || all.Remaining >= left {
			t.Errorf("seed %d: %d units denied, although they remained: %+v, then %+v", seed, left, res, all)
		}
		for i := range left { // single calls get them, after a Lag at most
			one := s.allow("k", 1)
			if !one.Allowed && one.RetryAfter > spec.Lag {
				t.Errorf("unit %d of %d denied, although they remained: %+v, then %+v", i+1, left, res, one)
				break
			}
			s.await("k", 1, one)
		}
	}
}

// leftAboveBurst checks that the denial of a cost above the burst has the right Remaining.
func leftAboveBurst(t *testing.T, spec Spec) {
	s := still(t, spec, 10)
	above := func(key string, left int64) {
		t.Helper()
		res := s.allow(key, 11)
		if res.Allowed || res.RetryAfter != hybridlimit.Never || res.Remaining != left {
			t.Errorf("11 units of a burst of 10, %d left: %+v", left, res)
		}
		if !spec.partial {
			res, err := s.lim.AllowLimit(context.Background(), key, 11, s.limit)
			if err != nil || res.Allowed || res.Remaining != left {
				t.Errorf("AllowLimit of 11 units under a limit of 10, want %d left: %+v, %v", left, res, err)
			}
		}
		if res.ResetAfter > 0 != (left < 10) && spec.Exact {
			t.Errorf("11 units of a burst of 10, %d left: %+v", left, res)
		}
	}
	above("fresh", 10)
	s.allow("k", 3)
	above("k", 7)
	if _, n := s.drain("k"); n == 7 { // otherwise some units are leased elsewhere
		above("k", 0)
	}
}

// setLimitInTime checks that units refill at the old rate until SetLimit, and at the new rate after it.
func setLimitInTime(t *testing.T, spec Spec) {
	s := newSubject(t, spec, 100, time.Hour, 100)
	slow, fast := s.limit, s.spec.Bucket(1000, time.Second, 100)
	// The entries of a log leave at their age, whatever the rate.
	if s.limit.Algorithm == hybridlimit.AlgSlidingLog {
		return
	}
	windows := s.inWindows()
	wait := 2 * time.Second
	if s.spec.real {
		if windows {
			return // the next window may begin at any moment
		}
		wait = 200 * time.Millisecond
	}
	set := func(limit hybridlimit.Limit) time.Time {
		began := time.Now()
		if err := s.lim.SetLimit(limit); err != nil {
			t.Fatal(err)
		}
		s.limit = limit
		s.forget("k")
		return began
	}
	had := func(why string, least, most int64, since time.Time) {
		t.Helper()
		got := (&bookings{subject: s, key: "k"}).drain()
		if windows {
			most = 0
		} else if !since.IsZero() {
			most += s.refilled(time.Since(since) + clockSlack)
		}
		if got > most || spec.Exact && !s.spec.real && !windows && got < least {
			t.Errorf("%s: %d units were admitted, want %d to %d", why, got, least, most)
		}
	}
	part := int64(0)
	if s.spec.real {
		part = 1 // part of a unit was left when the limit was changed, and may be a whole unit now
	}
	s.drain("k")
	s.spec.Sleep(wait)
	raised := set(fast)
	had("raised", 0, part, raised)
	if windows {
		return
	}
	s.spec.Sleep(50 * time.Millisecond)
	had("50 ms after it was raised", 50, part, raised) // most grows with the time since raised
	s.spec.Sleep(30 * time.Millisecond)
	lowered := set(slow)
	had("lowered", 30, 100, time.Time{})
	s.spec.Sleep(wait)
	had("some time after it was lowered", 0, part, lowered)
}

// limitsInTurn checks that two limits in turn admit no more than the larger one alone.
func limitsInTurn(t *testing.T, spec Spec) {
	s := newSubject(t, spec, 10, time.Hour, 10)
	limits := []hybridlimit.Limit{s.limit, s.spec.Bucket(10, time.Second, 10)}
	for i, key := range []string{"slow first", "fast first"} {
		began, got := time.Now(), int64(0)
		rng := rand.New(rand.NewPCG(uint64(i), 4))
		for range 80 {
			if !s.spec.real {
				s.spec.Sleep(time.Duration(rng.IntN(3)*rng.IntN(200)) * time.Millisecond)
			}
			limit := limits[i]
			i = 1 - i
			res, err := s.lim.AllowLimit(context.Background(), key, 1+rng.Int64N(3), limit)
			if err != nil || res.Limit != 10 {
				t.Fatalf("%+v, %v", res, err)
			}
			got += res.Granted
			s.limit = limits[1]
			if most := s.most(time.Since(began)); got > most {
				t.Fatalf("%s: %d units in %v, want at most %d", key, got, time.Since(began), most)
			}
		}
	}
}
