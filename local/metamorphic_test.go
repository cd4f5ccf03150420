package local

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

// TestRetryAfterIsExactToTheNanosecond checks that a denied call is denied again one
// nanosecond before its RetryAfter, and admitted at it. Buckets round, so they have a
// test of their own.
func TestRetryAfterIsExactToTheNanosecond(t *testing.T) {
	for _, algorithm := range listed {
		t.Run(algorithm.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				limit := anyLimitOf(t, algorithm)
				l, now := at(t, limit, Config{})
				begin := now
				for range rapid.IntRange(1, 12).Draw(t, "calls") {
					now = now.Add(anyPause(t, limit) / 4)
					n := logInt(t, limit.BurstSize(), "n")
					res := ask(t, l, now, "k", n)
					if res.Allowed || res.RetryAfter > 200*365*24*time.Hour-now.Sub(begin) { // their sum may overflow
						continue
					}
					if early := ask(t, l, now.Add(res.RetryAfter-1), "k", n); early.Allowed || early.RetryAfter != 1 {
						t.Fatalf("AllowN(%d) a ns before its RetryAfter of %v: %+v", n, res.RetryAfter, early)
					}
					now = now.Add(res.RetryAfter)
					if again := ask(t, l, now, "k", n); !again.Allowed {
						t.Fatalf("AllowN(%d) after its RetryAfter of %v: %+v", n, res.RetryAfter, again)
					}
				}
			})
		})
	}
}

// TestSplittingNeverAdmitsMore checks that n calls for one unit get exactly the units
// that one call for the same units gets.
func TestSplittingNeverAdmitsMore(t *testing.T) {
	eachAlgorithm(t, 1, time.Second, func(t *testing.T, like hybridlimit.Limit) {
		rapid.Check(t, func(t *rapid.T) {
			limit := small(t, like.Algorithm)
			whole, now := at(t, limit, Config{})
			split, _ := at(t, limit, Config{})
			for range 20 {
				now = now.Add(anyPause(t, limit))
				n := rapid.Int64Range(1, limit.BurstSize()).Draw(t, "n")
				room := mustPeek(t, whole, now).Remaining
				res := ask(t, whole, now, "k", min(n, max(room, 1)))
				var got int64
				for range n {
					got += ask(t, split, now, "k", 1).Granted
				}
				if got != res.Granted {
					t.Fatalf("%d single calls got %d units, one call %d", n, got, res.Granted)
				}
			}
		})
	})
}

// small draws a limit with a small burst, so that a test can take it unit by unit.
func small(t *rapid.T, algorithm hybridlimit.Algorithm) hybridlimit.Limit {
	limit := hybridlimit.Limit{
		Algorithm: algorithm, Period: time.Second,
		Rate: rapid.Int64Range(1, 100_000).Draw(t, "rate"), Burst: rapid.Int64Range(1, 50).Draw(t, "burst"),
	}
	if windowed(algorithm) {
		limit.Rate, limit.Burst = limit.Burst, 0
	}
	return limit
}

// TestRaisingTheLimitNeverAdmitsLess checks that a higher limit admits at least as many
// units up to any time, for calls of equal costs.
func TestRaisingTheLimitNeverAdmitsLess(t *testing.T) {
	eachAlgorithm(t, 1, time.Second, func(t *testing.T, like hybridlimit.Limit) {
		rapid.Check(t, func(t *rapid.T) {
			low := small(t, like.Algorithm)
			high := low
			more := rapid.Int64Range(0, 20).Draw(t, "more")
			if high.Rate += more; !windowed(low.Algorithm) {
				high.Burst += rapid.Int64Range(0, 20).Draw(t, "more burst")
			}
			n := rapid.Int64Range(1, low.BurstSize()).Draw(t, "n")
			a, now := at(t, low, Config{})
			b, _ := at(t, high, Config{})
			var lower, higher int64
			for range 60 {
				now = now.Add(anyPause(t, low) / 8)
				lower += ask(t, a, now, "k", n).Granted
				higher += ask(t, b, now, "k", n).Granted
				if higher < lower {
					t.Fatalf("%v admitted %d, %v only %d", low, lower, high, higher)
				}
			}
		})
	})
}

// TestShiftingTimeChangesNothing checks that all answers stay the same if the start is
// shifted: by any time, and for windows by whole windows.
func TestShiftingTimeChangesNothing(t *testing.T) {
	eachAlgorithm(t, 1, time.Second, func(t *testing.T, like hybridlimit.Limit) {
		rapid.Check(t, func(t *rapid.T) {
			limit := small(t, like.Algorithm)
			start := anyStart(t)
			shift := time.Duration(rapid.Int64Range(-1e6, 1e6).Draw(t, "shift"))
			if windowed(limit.Algorithm) {
				shift *= limit.Period
			}
			var ls [2]*Limiter
			for i, s := range []time.Time{start, start.Add(shift)} {
				ls[i] = newLimiter(limit, Config{}.withDefaults(limit), 1, s)
			}
			var d time.Duration
			for range 40 {
				d += anyPause(t, limit)
				n := rapid.Int64Range(1, limit.BurstSize()+1).Draw(t, "n")
				if a, b := ask(t, ls[0], start.Add(d), "k", n), ask(t, ls[1], start.Add(shift).Add(d), "k", n); a != b {
					t.Fatalf("%+v, and %v later %+v", a, shift, b)
				}
			}
		})
	})
}

// TestBorders shows the difference between the kinds of windows. A fixed window admits a
// whole burst before its border and another after it, within two nanoseconds. The
// sliding ones admit none of the second burst.
func TestBorders(t *testing.T) {
	const rate, per = 100, time.Minute
	for _, tc := range []struct {
		limit      hybridlimit.Limit
		after      int64         // units admitted at the border
		waits      time.Duration // then, for one more
		midway     int64         // units admitted in the middle of the window
		nextBorder int64
	}{
		{hybridlimit.FixedWindow(rate, per), rate, per, 0, rate},
		{hybridlimit.SlidingWindow(rate, per), 0, per / rate, rate / 2, rate / 2},
		{hybridlimit.SlidingLog(rate, per), 0, per - 1, 0, rate},
	} {
		t.Run(tc.limit.Algorithm.String(), func(t *testing.T) {
			l, start := at(t, tc.limit, Config{}) // midnight, a border
			if res := ask(t, l, start.Add(per-1), "k", rate); !res.Allowed {
				t.Fatalf("a fresh key: %+v", res)
			}
			take := func(d time.Duration) (hybridlimit.Result, int64) {
				res, err := l.atMostAt(start.Add(d), "k", 2*rate, "")
				if err != nil {
					t.Fatal(err)
				}
				return ask(t, l, start.Add(d), "k", 1), res.Granted
			}
			denial, got := take(per)
			if got != tc.after || denial.RetryAfter != tc.waits {
				t.Errorf("%d at the border, want %d; then %+v, want %v", got, tc.after, denial, tc.waits)
			}
			if _, got := take(per + per/2); got != tc.midway {
				t.Errorf("%d half a window later, want %d", got, tc.midway)
			}
			if _, got := take(2 * per); got != tc.nextBorder {
				t.Errorf("%d a window later, want %d", got, tc.nextBorder)
			}
		})
	}
}

// TestWindowsNeverWobble checks that all answers within a fixed window give the same
// end.
func TestWindowsNeverWobble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := anyLimitOf(t, hybridlimit.AlgFixedWindow)
		l, start := at(t, limit, Config{})
		var d, end time.Duration
		for range 30 {
			d += time.Duration(float64(limit.Period) * rapid.Float64Range(0, 0.3).Draw(t, "part"))
			res := ask(t, l, start.Add(d), "k", logInt(t, limit.Rate, "n"))
			switch {
			case res.ResetAfter == 0 || (start.UnixNano()+int64(d+res.ResetAfter))%int64(limit.Period) != 0:
				t.Fatalf("no border at %v: %+v", d, res)
			case d < end && d+res.ResetAfter != end:
				t.Fatalf("the end was %v, and at %v it is %v", end, d, d+res.ResetAfter)
			}
			end = d + res.ResetAfter
			if d > 50*365*24*time.Hour {
				return
			}
		}
	})
}
