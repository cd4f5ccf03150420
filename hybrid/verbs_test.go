package hybrid_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// inEachMode runs every mode, each in a bubble of its own.
func inEachMode(t *testing.T, run func(*testing.T, *redistest.Bubble, hybrid.Mode)) {
	inModes(t, modes, run)
}

// inModes runs the modes in parallel, because a busy machine does not disturb tests in virtual
// time.
func inModes(t *testing.T, modes []hybrid.Mode, run func(*testing.T, *redistest.Bubble, hybrid.Mode)) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { run(t, redistest.NewBubble(t), mode) })
		})
	}
}

func must(t *testing.T) func(hybridlimit.Result, error) hybridlimit.Result {
	return func(res hybridlimit.Result, err error) hybridlimit.Result {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return res
	}
}

// TestAllowAtMost checks that AllowAtMost takes all units of the limit, and no more.
func TestAllowAtMost(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		rdb := b.Client(nil)
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		var got int64
		for range 300 {
			res := must(t)(l.AllowAtMost(t.Context(), "k", 7))
			if res.Granted < 0 || res.Granted > 7 || res.Allowed != (res.Granted > 0) || (res.RetryAfter > 0) == res.Allowed {
				t.Fatalf("%+v", res)
			}
			got += res.Granted
			time.Sleep(7 * time.Millisecond)
		}
		shutdown(t, l)
		s := l.Stats()
		if got > 100 || got+s.Expired < 100 || s.Admitted != got || debited(t, rdb, "api", "k") != balance(t, s) {
			t.Errorf("took %d of 100, %d expired; %+v", got, s.Expired, s)
		}
	})
}

// TestAllowAtMostAsksOnce checks that one message takes all units that are left, if Redis decides.
// In an earlier version it took one unit.
func TestAllowAtMostAsksOnce(t *testing.T) {
	for _, tc := range []struct {
		mode  hybrid.Mode
		limit hybridlimit.Limit
	}{
		{hybrid.ModeExact, still(100)},
		{hybrid.ModeExact, hybridlimit.FixedWindow(100, time.Hour)},
		{hybrid.ModeAuto, hybridlimit.LeakyQueue(1, time.Hour, 100)},
		{hybrid.ModeAuto, hybridlimit.SlidingLog(100, time.Hour)},
	} {
		synctest.Test(t, func(t *testing.T) {
			rdb := redistest.NewBubble(t).Client(nil)
			l := newLimiter(t, rdb, tc.limit, hybrid.Config{Mode: tc.mode})
			for i, want := range []int64{70, 30, 0} {
				res := must(t)(l.AllowAtMost(t.Context(), "k", 70))
				if s := l.Stats(); res.Granted != want || res.Allowed != (want > 0) || (res.RetryAfter > 0) == res.Allowed || s.Ops != int64(i+1) {
					t.Errorf("%v of %v: %+v after %d messages, want %d units", tc.mode, tc.limit, res, s.Ops, want)
				}
			}
			shutdown(t, l)
			if s := l.Stats(); s.Admitted != 100 || balance(t, s) != 100 {
				t.Errorf("%v of %v: %+v", tc.mode, tc.limit, s)
			}
		})
	}
}

// TestAllowAtMostShadow checks that a shadow limit grants all requested units, and counts only the
// units that were left. In an earlier version it granted a part.
func TestAllowAtMostShadow(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Mode: mode, Shadow: true})
		time.Sleep(2300 * time.Millisecond)
		shadowed := false
		for i, n := range []int64{1, 3, 7, 7, 1} {
			res := must(t)(l.AllowAtMost(t.Context(), "k", n))
			if !res.Allowed || res.Granted != n || res.RetryAfter != 0 || i == 0 && res.Shadowed || n == 7 && !res.Shadowed {
				t.Errorf("call %d: %+v, want %d", i, res, n)
			}
			shadowed = shadowed || res.Shadowed
			time.Sleep(100 * time.Millisecond)
		}
		shutdown(t, l)
		s := l.Stats()
		if balance(t, s); s.Admitted+s.Expired > 5 || !shadowed {
			t.Errorf("%d of 5 were admitted: %+v", s.Admitted, s)
		}
	})
}

// TestPeek checks that Peek consumes nothing and returns the answer that a call would get.
func TestPeek(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		for left := int64(5); left >= 0; left-- {
			for range 3 {
				res := must(t)(l.Peek(t.Context(), "k"))
				if res.Remaining != left || res.Allowed != (left > 0) || res.Limit != 5 || (res.RetryAfter > 0) != (left == 0) || res.Granted != 0 {
					t.Fatalf("with %d left: %+v", left, res)
				}
			}
			before := l.Stats().Decisions()
			must(t)(l.Peek(t.Context(), "k"))
			if l.Stats().Decisions() != before {
				t.Fatal("a peek counts as a decision")
			}
			if res := ask(t, l, "k", 1); res.Allowed != (left > 0) {
				t.Fatalf("with %d left: %+v", left, res)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// TestPeekOfAUsedUpKey peeks at a key that is used up, for a minute, while no call is made. Peek denies, sends a message
// every few seconds, and finds units that another process gives back.
//
// Regression: after five seconds Peek admitted, with no unit left.
func TestPeekOfAUsedUpKey(t *testing.T) {
	limits := []hybridlimit.Limit{
		hybridlimit.FixedWindow(20, 24*time.Hour), hybridlimit.SlidingWindow(20, 24*time.Hour), still(20), hybridlimit.SlidingLog(20, 24*time.Hour),
		hybridlimit.LeakyBucket(1, time.Hour, 20), hybridlimit.CalendarWindow(20, hybridlimit.Calendar{Unit: hybridlimit.Month}),
	}
	for _, limit := range limits {
		t.Run(limit.String(), func(t *testing.T) {
			inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
				l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
				other := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
				time.Sleep(2300 * time.Millisecond)
				for range 30 {
					ask(t, l, "k", 1)
				}
				before := l.Hub().Stats().Syncs
				peeks := uint64(0)
				for began := time.Now(); time.Since(began) < time.Minute; peeks++ {
					if res := must(t)(l.Peek(t.Context(), "k")); res.Allowed || res.Remaining != 0 || res.RetryAfter <= 0 {
						t.Fatalf("after %v: %+v", time.Since(began), res)
					}
					time.Sleep(100 * time.Millisecond)
				}
				asked := l.Hub().Stats().Syncs - before
				if remembers := mode != hybrid.ModeExact && limit.Algorithm != hybridlimit.AlgSlidingLog; remembers && asked > 40 {
					t.Errorf("%d messages for %d peeks", asked, peeks)
				}
				must(t)(other.Refund(t.Context(), "k", 5))
				for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
					if res := must(t)(l.Peek(t.Context(), "k")); res.Allowed {
						break
					}
					if time.Since(began) > 12*time.Second {
						t.Fatal("units that another process has given back are not seen")
					}
				}
				b.Kill() // an old view is better than none
				must(t)(l.AllowN(t.Context(), "k", 5))
				for range 20 {
					if res, err := l.Peek(t.Context(), "k"); err == nil && res.Allowed != (res.Remaining > 0) {
						t.Errorf("without Redis: %+v", res)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestPeekWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(5), hybrid.Config{})
		b.Kill()
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Limit != 5 || res.Remaining != 5 || res.Source != hybridlimit.SourceFallback || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestCharge checks that a charge is debited in full, whatever is left, and that later calls are
// denied.
func TestCharge(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		rdb := b.Client(nil)
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "k", 10)
		if res := must(t)(l.Charge(t.Context(), "k", 110)); !res.Allowed || res.Granted != 110 || res.Remaining != 0 {
			t.Errorf("%+v", res)
		}
		time.Sleep(200 * time.Millisecond) // T
		if res := ask(t, l, "k", 1); res.Allowed {
			t.Errorf("in debt: %+v", res)
		}
		if s := inRedis(t, rdb, "api", "k"); s.Since != 120 || s.Level/s.Unit > -19 || s.Level/s.Unit < -20 {
			t.Errorf("%+v", s)
		}
		shutdown(t, l)
		if s := l.Stats(); s.Admitted != 120 || debited(t, rdb, "api", "k") != balance(t, s) {
			t.Errorf("%+v", s)
		}
	})
}

// TestChargeAfterTheWindow checks that a charge counts in the window in which it is made, also when the last view of the key
// is of an earlier window.
func TestChargeAfterTheWindow(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(100, 10*time.Second), hybridlimit.SlidingWindow(100, 10*time.Second)} {
		for _, later := range []time.Duration{9, 19, 29, 59} { // s
			inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
				l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
				time.Sleep(2300 * time.Millisecond)
				ask(t, l, "k", 1)
				time.Sleep(later * time.Second)
				must(t)(l.Charge(t.Context(), "k", 50))
				time.Sleep(200 * time.Millisecond)
				var got int64
				for range 100 {
					got += ask(t, l, "k", 1).Granted
				}
				if got > 50 || got < 49 {
					t.Errorf("%v, %v, charged after %d s: %d of 50 units admitted", limit, mode, later, got)
				}
			})
		}
	}
}

// TestSetLimit changes the limit of a key that has been used. Used units must stay used, from the
// next call on.
func TestSetLimit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit
		more  int64 // units available afterwards
	}{
		{"raised", still(200), 40},
		{"lowered, and capped", still(30), 30},
		{"lowered below what is used", still(10), 10},
		{"in other sub-units", hybridlimit.TokenBucket(7, 3*time.Hour, 50), 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
				l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{Mode: mode, Overshoot: map[bool]float64{true: -1}[mode == hybrid.ModeAuto]})
				time.Sleep(2300 * time.Millisecond)
				ask(t, l, "k", 60)
				time.Sleep(100 * time.Millisecond)
				if err := l.SetLimit(tc.limit); err != nil {
					t.Fatal(err)
				}
				if res := must(t)(l.Peek(t.Context(), "k")); res.Limit != tc.limit.BurstSize() || res.Remaining != tc.more {
					t.Errorf("%+v", res)
				}
				var got int64
				for range 250 {
					got += ask(t, l, "k", 1).Granted
					time.Sleep(10 * time.Millisecond)
				}
				if s := l.Stats(); got > tc.more || got+s.Expired+s.Held < tc.more {
					t.Errorf("%d units were admitted, want %d; %+v", got, tc.more, s)
				}
			})
		})
	}
}

func TestSetLimitRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb := b.Client(nil)
		l := newLimiter(t, rdb, still(100), hybrid.Config{FallbackFloor: 5})
		for name, limit := range map[string]hybridlimit.Limit{
			"nothing": {}, "below the floor": still(4), "negative": still(-1),
		} {
			if err := l.SetLimit(limit); !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := l.SetLimit(hybridlimit.FixedWindow(5, time.Second)); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Error(err)
		}
		other := newLimiter(t, rdb, still(100), hybrid.Config{})
		if err := l.SetLimit(still(50)); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("with another limiter of that name: %v", err)
		}
		other.Close()
		if err := l.SetLimit(still(50)); err != nil {
			t.Error(err)
		}
		newLimiter(t, rdb, still(50), hybrid.Config{}) // of the new limit
		l.Close()
		if err := l.SetLimit(still(50)); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestAllowLimit checks limits that come with a call: a larger limit admits more, and a change of
// the limit refills nothing.
func TestAllowLimit(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Mode: mode, Overshoot: map[bool]float64{true: -1}[mode == hybrid.ModeAuto]})
		time.Sleep(2300 * time.Millisecond)
		allow := func(limit hybridlimit.Limit, n int64) bool {
			res := must(t)(l.AllowLimit(t.Context(), "k", n, limit))
			if res.Limit != limit.BurstSize() {
				t.Errorf("%v: %+v", limit, res)
			}
			time.Sleep(100 * time.Millisecond)
			return res.Allowed
		}
		gold, plain := still(20), still(10)
		if !allow(gold, 15) || allow(gold, 6) || allow(plain, 6) || !allow(plain, 5) || allow(gold, 1) {
			t.Error("want 15 and then 5 units of the larger limit's 20, whichever limit a call has")
		}
		if res := ask(t, l, "k", 1); res.Allowed || res.Limit != 5 {
			t.Errorf("under its own limit: %+v", res)
		}
		if res := must(t)(l.AllowLimit(t.Context(), "k", 21, gold)); res.Allowed || res.RetryAfter != hybridlimit.Never {
			t.Errorf("above the burst: %+v", res)
		}
		if _, err := l.AllowLimit(t.Context(), "k", 1, hybridlimit.Limit{}); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Error(err)
		}
		if _, err := l.AllowLimit(t.Context(), "k", 0, gold); !errors.Is(err, hybridlimit.ErrCost) {
			t.Error(err)
		}
	})
}

// TestChargeBesideACallThatWaits charges units while Redis answers a call. The units of the answer pay for them first, so
// the call asks again: it is not denied while Redis has units.
func TestChargeBesideACallThatWaits(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{still(1000), hybridlimit.FixedWindow(1000, time.Hour), hybridlimit.SlidingWindow(1000, time.Hour)} {
		inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
			link := b.Link()
			link.Latency(5*time.Millisecond, 5*time.Millisecond)
			l := newLimiter(t, link.Client(nil), limit, hybrid.Config{Mode: mode, MaxWait: time.Second})
			time.Sleep(2300 * time.Millisecond)
			for i := range 40 {
				var calls sync.WaitGroup
				calls.Go(func() {
					if res := must(t)(l.AllowN(t.Context(), "k", 12)); !res.Allowed {
						t.Errorf("%v, %v: round %d: %+v", limit, mode, i, res)
					}
				})
				time.Sleep(4 * time.Millisecond)
				must(t)(l.Charge(t.Context(), "k", 7))
				calls.Wait()
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
			}
			time.Sleep(time.Second)
			shutdown(t, l)
			if s := l.Stats(); s.Admitted != 40*19 || s.Paid+s.Granted-s.Refunded != s.Admitted+s.Expired+s.Lost {
				t.Errorf("%v, %v: %+v", limit, mode, s)
			}
		})
	}
}
