package account

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

// shareOf returns the fallback bucket of one of n processes.
func shareOf(policy Policy, l hybridlimit.Limit, n, floor int64) Fallback {
	return NewPlan(l).Fallback(policy, floor, n)
}

// flood calls ten times in each time to full, for the given number of times to full, and returns the admitted units. A call in
// the same ns in which a unit becomes available may miss it by a rounding error. The next call is a tenth later.
func flood(s *fallbackBucket, t Fallback, full time.Duration, times int64, warm float64) (admitted int64) {
	for i := range 10 * times {
		if s.take(t, 1, sec+i*int64(full)/10, warm) {
			admitted++
		}
	}
	return admitted
}

func TestShareAdmitsItsPart(t *testing.T) {
	five := hybridlimit.PerMinute(5)
	for _, tc := range []struct {
		name   string
		policy Policy
		n      int64
		floor  int64
		warm   float64
		least  int64 // in 80 minutes, with ten calls a minute
		most   int64
	}{
		{"a fifth", FallbackShare, 5, 0, 1, 72, 81},
		{"the floor is one a time-to-full", FallbackShare, 40, 1, 1, 72, 81},
		// Regression: it was 0. The fraction was cut off at the size of the bucket, an eighth of a unit.
		{"without a floor an eighth of a unit is carried until it is one", FallbackShare, 40, 0, 0.125, 9, 10},
		{"the whole limit", FallbackFull, 5, 1, 5, 399, 405},
		{"everything", FallbackAllowAll, 5, 1, 1, 800, 800},
		{"nothing", FallbackDenyAll, 5, 1, 1, 0, 0},
	} {
		var s fallbackBucket
		if got := flood(&s, shareOf(tc.policy, five, tc.n, tc.floor), time.Minute, 80, tc.warm); got < tc.least || got > tc.most {
			t.Errorf("%s: %d in 80 minutes, want %d to %d", tc.name, got, tc.least, tc.most)
		}
	}
}

func TestShareSaysWhenToComeAgain(t *testing.T) {
	for _, n := range []int64{1, 5, 40} {
		st := shareOf(FallbackShare, hybridlimit.PerMinute(5), n, 0)
		s, now := fallbackBucket{}, sec
		s.take(st, 1, now, 0)
		wait := s.wait(st, 1)
		if s.take(st, 1, now+wait-wait/100, 0) || !s.take(st, 1, now+wait, 0) {
			t.Errorf("one of %d: not after %v", n, time.Duration(wait))
		}
	}
	st := shareOf(FallbackShare, hybridlimit.PerMinute(5), 5, 0)
	if got := (&fallbackBucket{}).wait(st, 2); got >= 0 {
		t.Errorf("two units of a share of one in %d ns", got)
	}
}

// The fallback bucket starts from the entry's last knowledge, not from a full bucket.
func TestShareStartsWarm(t *testing.T) {
	terms := stepTerms() // a burst of 10, a fallback bucket of 5
	for _, tc := range []struct {
		name string
		s    Account
		want float64
	}{
		{"nothing known", Account{}, 5},
		{"half left", seen(terms, 5), 2.5},
		{"less what is owed", Account{view: seen(terms, 5).view, pending: 1, inflight: 2}, 1},
		{"in debt", seen(terms, -3), 0},
		{"full", seen(terms, 10), 5},
	} {
		if got := tc.s.warm(terms, sec); got != tc.want {
			t.Errorf("%s: %g, want %g", tc.name, got, tc.want)
		}
	}
	s := seen(terms, 0)
	s.locally(terms, 1, sec, RedisAway)
	if s.locally(terms, 1, sec+100*ms, RedisAway).Action == Admit || s.locally(terms, 1, sec+250*ms, RedisAway).Action != Admit {
		t.Error("an empty bucket is not refilled at the share's rate, 5 a second")
	}
}

// After an outage a process owes the units that it admitted, or the units that its bucket lacks, whichever is less. The refill
// during the outage is forgiven, as Redis would have done.
func TestShareSettles(t *testing.T) {
	st := Fallback{Cap: 10, PerNs: 1e-9} // one per second
	for _, tc := range []struct {
		name  string
		takes int64
		warm  float64
		after int64 // ns
		owes  int64
	}{
		{"at once: all of it", 4, 10, 0, 4},
		{"half refilled", 4, 10, 2 * sec, 2},
		{"in part refilled counts as owed", 4, 10, 2*sec + 1, 2},
		{"refilled: nothing", 4, 10, 4 * sec, 0},
		{"what was lacking before is not owed", 2, 2, 0, 2},
		{"nor is a unit of it forgiven for refill that Redis has too", 2, 2, 5 * sec, 2},
	} {
		var s fallbackBucket
		for range tc.takes {
			if !s.take(st, 1, sec, tc.warm) {
				t.Fatal(tc.name)
			}
		}
		if got := s.settle(st, sec+tc.after); got != tc.owes {
			t.Errorf("%s: owes %d, want %d", tc.name, got, tc.owes)
		}
		if got := s.settle(st, sec+tc.after); got != 0 {
			t.Errorf("%s: owes %d again", tc.name, got)
		}
	}
}

// Under each policy a process owes at most the units that it admitted, and at most the units that the bucket lacks. Without
// refill it owes all of them.
func TestShareSettlesFairly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := hybridlimit.TokenBucket(rapid.Int64Range(1, 100).Draw(t, "rate"), time.Second, rapid.Int64Range(1, 50).Draw(t, "burst"))
		policy := rapid.SampledFrom([]Policy{FallbackShare, FallbackFull, FallbackAllowAll, FallbackDenyAll}).Draw(t, "policy")
		st := shareOf(policy, l, rapid.Int64Range(1, 60).Draw(t, "n"), rapid.Int64Range(0, 1).Draw(t, "floor"))
		var s fallbackBucket
		now, admitted, moved := sec, int64(0), int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			step := rapid.Int64Range(0, sec/10).Draw(t, "step") * rapid.Int64Range(0, 1).Draw(t, "moves")
			now, moved = now+step, moved+step
			n := rapid.Int64Range(1, l.Burst).Draw(t, "n")
			if s.take(st, n, now, st.Cap) {
				admitted += n
			}
		}
		owed := s.settle(st, now)
		if owed < 0 || owed > admitted || float64(owed) >= st.Cap+1 {
			t.Fatalf("owes %d of %d admitted, share %g", owed, admitted, st.Cap)
		}
		if policy != FallbackAllowAll && moved == 0 && owed != admitted {
			t.Fatalf("owes %d of %d although nothing was refilled", owed, admitted)
		}
	})
}
