package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestRemainingCountsDown checks that Remaining is exact without other processes and
// without refill: it falls by the units of each call, whatever the source of the decision.
func TestRemainingCountsDown(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(500), hybrid.Config{Mode: mode})
				time.Sleep(2 * time.Second)
				sources := map[hybridlimit.Source]bool{}
				for used := int64(0); used < 400; {
					n := 1 + used%3
					res := ask(t, l, "k", n)
					used += n
					sources[res.Source] = true
					// The units of expired leases are gone.
					if want := 500 - used - l.Stats().Expired; res.Remaining != want {
						t.Fatalf("after %d units, by %v: %d remain, want %d", used, res.Source, res.Remaining, want)
					}
					time.Sleep(time.Millisecond)
				}
				if mode != hybrid.ModeExact && len(sources) < 2 {
					t.Errorf("all decided by %v", sources)
				}
			})
		})
	}
}

// TestResetAfterCountsDebt checks that ResetAfter contains the time in which a debt is
// repaid. In an earlier version it counted from an empty bucket, whatever the debt. So it
// was too short for a key in debt, and for a fixed window it named the end of the window in
// which no unit is left.
func TestResetAfterCountsDebt(t *testing.T) {
	const period = time.Minute
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(10, period, 10), hybridlimit.LeakyQueue(10, period, 10),
		hybridlimit.FixedWindow(10, period), hybridlimit.SlidingWindow(10, period), hybridlimit.SlidingLog(10, period),
	} {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
				l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
				time.Sleep(time.Until(time.Now().Truncate(period).Add(period + 3*time.Second))) // into a window
				began := time.Now()
				var full time.Time
				switch limit.Algorithm {
				case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow:
					full = began.Truncate(period).Add(2 * period)
				case hybridlimit.AlgSlidingLog:
					full = began.Add(period)
				default: // 15 units at one in 6 s
					full = began.Add(period * 3 / 2)
				}
				said := func(what string, res hybridlimit.Result) {
					t.Helper()
					// The estimate is in whole units, and the clock of the common
					// path runs behind.
					off := time.Now().Add(res.ResetAfter).Sub(full)
					if off < 0 || off > period/10+15*time.Millisecond || res.Remaining != 0 {
						t.Errorf("%v, %s by %v: %v to the reset, want %v: %+v", mode, what, res.Source, res.ResetAfter, time.Until(full), res)
					}
				}
				for took := int64(0); took < 10 && !t.Failed(); {
					if res := ask(t, l, "k", 1); res.Allowed {
						took++
					}
				}
				res := must(t)(l.Charge(t.Context(), "k", 5))
				if limit.Algorithm == hybridlimit.AlgSlidingLog {
					full = time.Now().Add(period)
				}
				said("a charge", res)
				for range 8 {
					said("a denial", ask(t, l, "k", 1))
					said("one of more", ask(t, l, "k", 3))
					said("some", must(t)(l.AllowAtMost(t.Context(), "k", 3)))
					said("a peek", must(t)(l.Peek(t.Context(), "k")))
					time.Sleep(30 * time.Millisecond)
				}
			})
		})
	}
}
