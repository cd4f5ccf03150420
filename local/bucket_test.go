package local

import (
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

// newRate returns a rate.Limiter of a limit.
func newRate(limit hybridlimit.Limit) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(newPlan(limit, 0, time.Unix(0, 0)).perSecond), int(limit.BurstSize()))
}

// TestSlackIsTheLargest checks that slack is the largest number of missing units for which
// rate.Limiter waits less than a nanosecond.
func TestSlackIsTheLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := anyLimit(t)
		p := newPlan(limit, 0, time.Unix(0, 0))
		if p.nanos(p.slack) >= 1 || p.nanos(math.Nextafter(p.slack, math.Inf(1))) < 1 {
			t.Fatalf("%v: slack %v", limit, p.slack)
		}
	})
}

// TestBucketIsTimeRate compares a bucket with a rate.Limiter: each decision and each
// level, to the bit, under any limit, with bookings ahead and changes of the limit.
func TestBucketIsTimeRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := anyLimit(t)
		start := time.Unix(0, 0)
		p := newPlan(limit, 0, start)
		e, lim := newEntry(p, nil), newRate(limit)
		b := e.state.(*bucket)
		var now time.Duration
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			if now += anyPause(t, limit); now > 100*365*24*time.Hour {
				return
			}
			at := start.Add(now)
			n := logInt(t, limit.BurstSize(), "n")
			switch rapid.SampledFrom([]string{"allow", "allow", "allow", "book", "change"}).Draw(t, "verb") {
			case "allow":
				_, ok, _ := b.decide(p, now, n)
				if want := lim.AllowN(at, int(n)); ok != want {
					t.Fatalf("%v: %d of %v: %v, rate.Limiter: %v", limit, n, b, ok, want)
				}
			case "book":
				if got := b.take(p, now, n, hybridlimit.Never); got.ok && !lim.ReserveN(at, int(n)).OK() {
					t.Fatalf("%v: %d booked, not by rate.Limiter", limit, n)
				}
			case "change":
				next := anyLimit(t)
				to := newPlan(next, 0, start)
				b.change(p, to, now)
				lim.SetLimitAt(at, rate.Limit(to.perSecond))
				lim.SetBurstAt(at, int(to.burst))
				limit, p = next, to
			}
			if got, want := b.at(p, now), lim.TokensAt(at); got != want {
				t.Fatalf("%v at %v: level %v, rate.Limiter: %v", limit, now, got, want)
			}
		}
	})
}
