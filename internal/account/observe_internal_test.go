package account

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// viewed returns an account with a view of a bucket that was received at 1 s, and its conditions.
func viewed(limit hybridlimit.Limit, left int64) (*Account, *Conditions) {
	p := NewPlan(limit)
	c := &Conditions{Bucket: p.Bucket, Window: p.Window, Limit: limit, N: 1, Credit: limit.BurstSize(), RelookIn: 1e12}
	a := new(Account)
	a.see(c, Answer{Answer: algo.Answer{Level: left * p.Bucket.Unit, Cap: p.Bucket.Cap, Born: 1}, RedisNow: 5_000_000, Sent: 1e9}, 1e9)
	return a, c
}

// TestObserveAnOldView has a bucket that has been full since the view. What another party has left is all that may be
// spent on credit, and the refill from then on.
func TestObserveAnOldView(t *testing.T) {
	for _, age := range []time.Duration{0, time.Second, time.Minute, 300 * 24 * time.Hour, 1 << 62} {
		a, c := viewed(hybridlimit.PerSecond(100), 100)
		now := int64(1e9 + age)
		told := a.told(c)
		next, news := a.Observe(c, Observed{Used: 70, Until: now + 1e9}, now)
		if next != SyncLazily || !news {
			t.Errorf("%v: %v, %t", age, next, news)
		}
		if age < 1<<62 { // otherwise the view is void
			for i, want := range []int64{30, 31, 40, 100} {
				at := now + []int64{0, 1e7, 1e8, 1e10}[i]
				if got := a.CreditLeft(c, at); got != want {
					t.Errorf("%v: %d units after %v, want %d", age, got, time.Duration(at-now), want)
				}
			}
			if got := a.told(c); got != told {
				t.Errorf("%v: Redis gets back %+v, want %+v", age, got, told)
			}
		} else if got := a.CreditLeft(c, now); got != 0 {
			t.Errorf("%v: %d units", age, got)
		}
		if _, news := a.Observe(c, Observed{Used: 60, Until: now + 1e9}, now); news && age < 1<<62 {
			t.Errorf("%v: a larger rest is news", age)
		}
	}
}

// TestObservationEnds has one that no sync tells in time. The view is as before.
func TestObservationEnds(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.TokenBucket(1, time.Hour, 100), hybridlimit.FixedWindow(100, time.Hour), hybridlimit.SlidingWindow(100, time.Hour)} {
		a, c := viewed(limit, 90)
		if c.windowed() {
			a.view.ends = 1e15
		}
		a.Observe(c, Observed{Used: 30, Until: 2e9}, 1e9)
		a.Observe(c, Observed{Used: 20, Until: 5e9}, 1e9) // no news
		a.Observe(c, Observed{Used: 40, Until: 3e9}, 1e9)
		if got := a.CreditLeft(c, 1e9); got != 60 {
			t.Errorf("%v: %d units, want 60", limit, got)
		}
		if a.tellsUse(3e9-1) != true || a.tellsUse(3e9) || a.CreditLeft(c, 3e9) != 90 {
			t.Errorf("%v: after its end, %d units are left", limit, a.CreditLeft(c, 3e9))
		}
		if _, news := a.Observe(c, Observed{Used: 30, Until: 3e9}, 3e9); news {
			t.Errorf("%v: one that has ended is news", limit)
		}
	}
}

// TestObserveBesideASync has a sync in flight that does not know of the observation.
func TestObserveBesideASync(t *testing.T) {
	a, c := viewed(hybridlimit.TokenBucket(1, time.Hour, 100), 90)
	a.frozen = true
	a.Observe(c, Observed{Used: 70, Until: 9e9}, 1e9)
	a.land()
	a.see(c, Answer{Answer: algo.Answer{Level: 80 * c.Bucket.Unit, Cap: c.Bucket.Cap, Born: 1}, RedisNow: 6_000_000, Sent: 2e9}, 2e9)
	if got := a.CreditLeft(c, 2e9); got != 30 {
		t.Errorf("%d units after the answer, want 30", got)
	}
	op := a.whole(c, nil, forUse, 0, false, false, 2e9)
	if op.Used != 70 || op.View.Level != 80*c.Bucket.Unit || a.tellsUse(2e9) {
		t.Errorf("%+v", op)
	}
	a.see(c, Answer{Answer: algo.Answer{Level: 30 * c.Bucket.Unit, Cap: c.Bucket.Cap, Born: 1}, RedisNow: 7_000_000, Sent: 3e9}, 3e9)
	if got := a.CreditLeft(c, 3e9); got != 30 {
		t.Errorf("%d units after the answer to it, want 30", got)
	}
}

// TestObserveWithLeases holds leased units. Redis knows those of a bucket. Of a window, the op adds those that stay,
// and the view lowers by them too. If fewer units are left than are held, all go back at once.
func TestObserveWithLeases(t *testing.T) {
	for _, tc := range []struct {
		limit      hybridlimit.Limit
		used, want int64 // of the op
	}{
		{hybridlimit.TokenBucket(1, time.Hour, 100), 70, 70},
		{hybridlimit.FixedWindow(100, time.Hour), 70, 90},
		{hybridlimit.SlidingWindow(100, time.Hour), 70, 90},
		{hybridlimit.FixedWindow(100, time.Hour), 95, 95}, // the leases go back
	} {
		a, c := viewed(tc.limit, 80)
		a.leases[0] = lease{units: 20, end: 1e15, booked: !c.windowed()}
		if c.windowed() {
			a.view.ends, a.view.window, a.leases[0].window = 1e15, 1, 1
		}
		next, news := a.Observe(c, Observed{Used: tc.used, Until: 9e9}, 1e9)
		if back := tc.used > 80; !news || (next == SyncNow) != back || a.leaving != back {
			t.Errorf("%v, %d used: %v, %t, %t", tc.limit, tc.used, next, news, a.leaving)
		}
		op := a.whole(c, nil, forUse, map[bool]int64{true: 20}[a.leaving], false, a.leaving, 1e9)
		if op.Used != tc.want {
			t.Errorf("%v, %d used: the op has %d, want %d", tc.limit, tc.used, op.Used, tc.want)
		}
		if got, want := a.CreditLeft(c, 1e9), 100-tc.want; tc.used < 80 && got != want {
			t.Errorf("%v: %d units on credit, want %d", tc.limit, got, want)
		}
	}
}
