package account

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

func newShare() fallback.Share { return fallback.OfKey{Of: fallback.New(1), Key: "k"} }

// shareOf returns the conditions of an outage for one of n processes.
func shareOf(policy fallback.Kind, l hybridlimit.Limit, n, floor int64) *Conditions {
	p := NewPlan(l)
	c := &Conditions{Bucket: p.Bucket, Window: p.Window, Limit: l, N: n, Tick: ms, Broken: true, Fallback: p.Fallback(policy, floor, n)}
	c.Fallback.Share = newShare()
	return c
}

// flood calls ten times in each time to full, for the given number of times to full, and returns the admitted units. A call in
// the same ns in which a unit becomes available may miss it by a rounding error. The next call is a tenth later.
func flood(c *Conditions, full time.Duration, times int64) (admitted int64) {
	var a Account
	for i := range 10 * times {
		if a.Call(c, 1, sec+i*int64(full)/10).Action == Admit {
			admitted++
		}
	}
	return admitted
}

func TestShareAdmitsItsPart(t *testing.T) {
	five := hybridlimit.PerMinute(5)
	for _, tc := range []struct {
		name   string
		policy fallback.Kind
		limit  hybridlimit.Limit
		n      int64
		floor  int64
		least  int64 // in 80 minutes, with ten calls a minute
		most   int64
	}{
		{"a fifth", fallback.KindShare, five, 5, 0, 79, 81},
		// Regression: 40 processes admitted 40 times 80.
		{"the floor raises the burst, not the rate", fallback.KindShare, five, 40, 1, 10, 11},
		{"a larger floor does so too", fallback.KindShare, five, 40, 3, 12, 13},
		{"the whole limit", fallback.KindFull, five, 5, 1, 399, 405},
		{"everything", fallback.KindAllowAll, five, 5, 1, 800, 800},
		{"nothing", fallback.KindDenyAll, five, 5, 1, 0, 0},
		{"a fixed window: what does not divide is left", fallback.KindShare, hybridlimit.FixedWindow(11, time.Minute), 5, 0, 160, 162},
		{"a fixed window below one unit", fallback.KindShare, hybridlimit.FixedWindow(5, time.Minute), 40, 0, 10, 11},
		{"a sliding window", fallback.KindShare, hybridlimit.SlidingWindow(50, time.Minute), 5, 0, 640, 810},
		{"a log", fallback.KindShare, hybridlimit.SlidingLog(50, time.Minute), 5, 0, 640, 810},
		{"a log below one unit", fallback.KindShare, hybridlimit.SlidingLog(5, time.Minute), 40, 0, 10, 11},
		{"a queue", fallback.KindShare, hybridlimit.LeakyBucket(5, time.Minute, 10), 5, 0, 79, 83},
	} {
		if got := flood(shareOf(tc.policy, tc.limit, tc.n, tc.floor), time.Minute, 80); got < tc.least || got > tc.most {
			t.Errorf("%s: %d in 80 minutes, want %d to %d", tc.name, got, tc.least, tc.most)
		}
	}
}

func TestShareSaysWhenToComeAgain(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.PerMinute(5), hybridlimit.FixedWindow(5, time.Minute), hybridlimit.SlidingWindow(5, time.Minute),
		hybridlimit.SlidingLog(5, time.Minute),
	} {
		for _, n := range []int64{1, 5, 40} {
			for _, step := range []int64{0, sec, 7 * sec} {
				c := shareOf(fallback.KindShare, limit, n, 0)
				var a Account
				now := sec
				for a.Call(c, 1, now).Action == Admit {
					now += step
				}
				wait := a.Call(c, 1, now).Retry
				early, ready := a.Call(c, 1, now+wait-wait/100), a.Call(c, 1, now+wait)
				if early.Action == Admit || ready.Action != Admit {
					t.Errorf("%v, one of %d, a call each %v: not after %v", limit.Algorithm, n, time.Duration(step), time.Duration(wait))
				}
			}
		}
	}
	c := shareOf(fallback.KindShare, hybridlimit.PerMinute(5), 5, 0)
	if got := new(Account).Call(c, 2, sec); got.Action == Admit || got.Retry != c.Tick {
		t.Errorf("two units of a share of one: %+v", got)
	}
}

// The share starts from the entry's last knowledge, and is not full then.
func TestShareStartsWarm(t *testing.T) {
	terms := stepTerms() // a burst of 10, a share of 5
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
		t.Error("an empty share is not refilled at its rate, 5 a second")
	}
}

// TestShareOutlivesAnOutage checks that an outage soon after another one begins with what that one has left.
func TestShareOutlivesAnOutage(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(10, time.Minute, 10), hybridlimit.FixedWindow(10, time.Minute), hybridlimit.SlidingWindow(10, time.Minute),
		hybridlimit.SlidingLog(10, time.Minute), hybridlimit.LeakyBucket(10, time.Minute, 10),
	} {
		c := shareOf(fallback.KindShare, limit, 2, 0)
		var admitted int
		for outage := range int64(20) {
			var a Account // without a view, it knows nothing of the outage before
			for range 10 {
				if a.Call(c, 1, sec+outage*sec).Action == Admit {
					admitted++
				}
			}
		}
		if admitted < 5 || admitted > 5+2 { // 10/2 a minute come back
			t.Errorf("%v: %d units in 20 outages in 20 s, want 5 to 7", limit.Algorithm, admitted)
		}
	}
}

// After an outage a process owes the units that it admitted, or the units that its share lacks, whichever is less. The refill
// during the outage is forgiven, as Redis would have done.
func TestShareSettles(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes int64
		warm  float64
		after int64 // ns
		owes  int64
	}{
		{"at once: all of it", 4, 10, 0, 4},
		{"half refilled", 4, 10, 2 * sec, 2},
		{"in part refilled counts as owed", 4, 10, 2*sec + 1e6, 2},
		{"refilled: nothing", 4, 10, 4 * sec, 0},
		{"what was lacking before is not owed", 2, 2, 0, 2},
		{"nor is a unit of it forgiven for refill that Redis has too", 2, 2, 5 * sec, 2},
	} {
		f := Fallback{Size: fallback.Size{Burst: 10, PerNs: 1e-9}, Share: newShare()} // one per second
		var o outage
		f.Share.Lower(f.Size, tc.warm, sec)
		for range tc.takes {
			if !f.Share.Take(f.Size, 1, sec) {
				t.Fatal(tc.name)
			}
			o.note(&f, 1, sec)
		}
		if got := o.settle(&f, sec+tc.after); got != tc.owes {
			t.Errorf("%s: owes %d, want %d", tc.name, got, tc.owes)
		}
		if got := o.settle(&f, sec+tc.after); got != 0 {
			t.Errorf("%s: owes %d again", tc.name, got)
		}
	}
}

// Under each policy a process owes at most the units that it admitted, and at most the units that the share lacks. Without
// refill it owes all of them.
func TestShareSettlesFairly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := hybridlimit.TokenBucket(rapid.Int64Range(1, 100).Draw(t, "rate"), time.Second, rapid.Int64Range(1, 50).Draw(t, "burst"))
		policy := rapid.SampledFrom([]fallback.Kind{
			fallback.KindShare, fallback.KindFull, fallback.KindAllowAll, fallback.KindDenyAll,
		}).Draw(t, "policy")
		c := shareOf(policy, l, rapid.Int64Range(1, 60).Draw(t, "n"), rapid.Int64Range(0, 1).Draw(t, "floor"))
		var a Account
		now, admitted, moved := sec, int64(0), int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			step := rapid.Int64Range(0, sec/10).Draw(t, "step") * rapid.Int64Range(0, 1).Draw(t, "moves")
			now, moved = now+step, moved+step
			n := rapid.Int64Range(1, l.Burst).Draw(t, "n")
			if a.Call(c, n, now).Action == Admit {
				admitted += n
			}
		}
		owed := a.local.settle(&c.Fallback, now)
		if owed < 0 || owed > admitted || owed > c.Fallback.Burst {
			t.Fatalf("owes %d of %d admitted, share %d", owed, admitted, c.Fallback.Burst)
		}
		if policy != fallback.KindAllowAll && moved == 0 && owed != admitted {
			t.Fatalf("owes %d of %d although nothing was refilled", owed, admitted)
		}
	})
}
