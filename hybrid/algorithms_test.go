package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

var algorithms = []hybridlimit.Limit{
	hybridlimit.TokenBucket(100, time.Second, 50), hybridlimit.LeakyBucket(100, time.Second, 50), hybridlimit.LeakyQueue(100, time.Second, 20),
	hybridlimit.FixedWindow(100, time.Second), hybridlimit.SlidingWindow(100, time.Second), hybridlimit.SlidingLog(100, time.Second),
	hybridlimit.WindowFromUse(100, time.Second),
}

// modesOf returns the modes that make a difference for a limit. A log is
// decided by Redis in each mode, a queue has credit in none, and a leaky bucket
// is a token bucket.
func modesOf(limit hybridlimit.Limit) []hybrid.Mode {
	switch limit.Algorithm {
	case hybridlimit.AlgLeakyBucket, hybridlimit.AlgLeakyQueue, hybridlimit.AlgSlidingLog:
		return modes[:1]
	}
	return modes
}

// told is one admission: the time at which a caller was told, and the units.
type told struct {
	at    time.Duration
	units int64
}

// TestFleetUnderEachAlgorithm puts ten times the limit on a fleet, under each
// algorithm (2.5 times in ModeExact). The units admitted in any trailing second
// must stay within the promise of the algorithm plus (N-1)·C, and at least 93 %
// of the rate must be admitted.
func TestFleetUnderEachAlgorithm(t *testing.T) {
	const n, span = 3, 3 * time.Second
	for _, limit := range algorithms {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			t.Parallel()
			for _, mode := range modesOf(limit) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					rdb := b.Client(nil)
					var ls []*hybrid.Limiter
					for range n {
						link := b.Link()
						link.Latency(250*time.Microsecond, 250*time.Microsecond)
						ls = append(ls, newLimiter(t, link.Client(nil), limit, hybrid.Config{Mode: mode}))
						time.Sleep(10 * time.Millisecond)
					}
					time.Sleep(2300 * time.Millisecond)
					credit := ls[0].Stats().Credit
					var got []told
					var sum int64
					began := time.Now()
					for i := 0; time.Since(began) < span; i++ {
						res := ask(t, ls[i%n], "k", 1)
						if res.Allowed {
							got = append(got, told{time.Since(began), 1})
							sum++
						}
						if (res.RetryAfter > 0) == res.Allowed || res.Limit != limit.BurstSize() || res.ResetAfter < 0 || !res.Allowed && res.ResetAfter == 0 {
							t.Fatalf("%v: %+v", mode, res)
						}
						time.Sleep(time.Millisecond)
						if mode == hybrid.ModeExact {
							time.Sleep(3 * time.Millisecond)
						}
					}
					worst := trailing(got, time.Second)
					most := map[hybridlimit.Algorithm]int64{
						hybridlimit.AlgFixedWindow: 2 * limit.Rate, hybridlimit.AlgCalendarWindow: 2 * limit.Rate, hybridlimit.AlgSlidingWindow: 2 * limit.Rate, hybridlimit.AlgSlidingLog: limit.Rate,
					}[limit.Algorithm]
					if most == 0 {
						most = limit.Rate + limit.BurstSize()
					}
					if most += (n-1)*credit + 1; worst > most {
						t.Errorf("%v: %d units in a second, want at most %d (C is %d)", mode, worst, most, credit)
					}
					if least := int64(float64(limit.Rate) * span.Seconds() * 0.93); sum < least {
						t.Errorf("%v: %d units admitted in %v, want at least %d", mode, sum, span, least)
					}
					if worst := inWindows(got, began, limit); worst > float64(limit.Rate+(n-1)*credit)+1 {
						t.Errorf("%v: %.1f units counted in a window, want at most %d + (N-1)·%d", mode, worst, limit.Rate, credit)
					}
					shutdown(t, ls...)
					var known int64
					for _, l := range ls {
						known += balance(t, l.Stats())
					}
					if limit.TimeToFull() > time.Second { // else Redis forgot the state in between
						if got := debited(t, rdb, "api", "k"); got != known {
							t.Errorf("%v: Redis debited %d, the fleet knows of %d", mode, got, known)
						}
					}
				})
			}
		})
	}
}

// inWindows returns the largest count of a window: the units of a fixed window,
// or the estimate of a sliding window. For other limits it returns 0.
func inWindows(got []told, began time.Time, limit hybridlimit.Limit) (most float64) {
	if limit.Algorithm != hybridlimit.AlgFixedWindow && limit.Algorithm != hybridlimit.AlgSlidingWindow {
		return 0
	}
	counts := map[int64]int64{}
	for _, g := range got {
		at := began.Add(g.at).UnixMicro()
		window, into := at/limit.Period.Microseconds(), at%limit.Period.Microseconds()
		counts[window] += g.units
		units := float64(counts[window])
		if limit.Algorithm == hybridlimit.AlgSlidingWindow {
			units += float64(counts[window-1]) * (1 - float64(into)/float64(limit.Period.Microseconds()))
		}
		most = max(most, units)
	}
	return most
}

// trailing returns the most units in any interval of length d.
func trailing(got []told, d time.Duration) (most int64) {
	var sum int64
	first := 0
	for _, g := range got {
		sum += g.units
		for got[first].at <= g.at-d {
			sum -= got[first].units
			first++
		}
		most = max(most, sum)
	}
	return most
}

// TestQueueDelays checks that queued calls are told their times, one after the
// other.
func TestQueueDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.LeakyQueue(10, time.Second, 5), hybrid.Config{})
		for i := range 7 {
			res := ask(t, l, "k", 1)
			if want := time.Duration(i) * 100 * time.Millisecond; res.Allowed != (i < 5) || res.Allowed && res.Delay != want {
				t.Errorf("call %d: %+v, want a delay of %v", i, res, want)
			}
		}
	})
}

// TestFixedWindowResetsOnce checks that all answers name the same end of a
// fixed window, from memory and from Redis.
func TestFixedWindowResetsOnce(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), hybridlimit.FixedWindow(40, time.Second), hybrid.Config{Mode: mode})
		time.Sleep(3100 * time.Millisecond)
		end := time.Now().Truncate(time.Second).Add(time.Second)
		ask(t, l, "k", 1) // now the window is known
		time.Sleep(100 * time.Millisecond)
		for range 80 {
			res := ask(t, l, "k", 1)
			together := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "x", N: 1}, hybridlimit.Ask{Limiter: l, Key: "y", N: 1}))
			for _, r := range []hybridlimit.Result{res, together} {
				// The coarse clock of the fast path is up to a tick behind.
				if at := time.Now().Add(r.ResetAfter); at.Before(end.Add(-time.Millisecond)) || at.After(end.Add(10*time.Millisecond)) {
					t.Fatalf("%+v: resets at %v, the window ends at %v", r, at, end)
				}
			}
			if rest := time.Until(end); !res.Allowed && (res.RetryAfter < rest-time.Millisecond || res.RetryAfter > rest+5*time.Millisecond+2*time.Microsecond) { // Redis counts in µs
				t.Fatalf("%+v: RetryAfter must be the rest of the window, %v", res, rest)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// TestStaticLimits checks limiters whose limit is Unlimited or Blocked, in each
// mode.
func TestStaticLimits(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		free := add(t, h, hybridlimit.Unlimited(), hybrid.Config{Name: "free", Mode: mode})
		none := add(t, h, hybridlimit.Blocked(), hybrid.Config{Name: "none", Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		for _, n := range []int64{1, 1 << 40} {
			if res := ask(t, free, "k", n); !res.Allowed || res.Granted != n || res.Source != hybridlimit.SourceStatic {
				t.Errorf("%+v", res)
			}
			if res := must(t)(free.AllowAtMost(t.Context(), "k", n)); res.Granted != n {
				t.Errorf("%+v", res)
			}
			if res := ask(t, none, "k", n); res.Allowed || res.RetryAfter != hybridlimit.Never || res.Source != hybridlimit.SourceStatic {
				t.Errorf("%+v", res)
			}
			if res := must(t)(none.AllowAtMost(t.Context(), "k", n)); res.Allowed || res.Granted != 0 {
				t.Errorf("%+v", res)
			}
			must(t)(none.Charge(t.Context(), "k", n))
		}
		if res := must(t)(free.Peek(t.Context(), "k")); !res.Allowed || res.Granted != 0 {
			t.Errorf("%+v", res)
		}
		if res := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: free, Key: "k", N: 1})); !res.Allowed {
			t.Errorf("%+v", res)
		}
		if res := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: free, Key: "k", N: 1}, hybridlimit.Ask{Limiter: none, Key: "k", N: 1})); res.Allowed || res.Policy != "none" {
			t.Errorf("%+v", res)
		}
		// No limit counts these units, so no books have them. They were once in
		// Admitted.
		for _, l := range []*hybrid.Limiter{free, none} {
			if s := l.Stats(); balance(t, s) != 0 || s.Admitted != 0 {
				t.Errorf("%+v", s)
			}
		}
		if err := free.SetLimit(hybridlimit.Blocked()); err != nil {
			t.Error(err)
		}
		if res := ask(t, free, "k", 1); res.Allowed {
			t.Errorf("%+v", res)
		}
	})
}
