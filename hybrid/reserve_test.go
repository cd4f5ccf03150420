package hybrid_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestReserve checks that reservations of more units than are left are booked with Redis,
// one behind the other, and that they can be cancelled.
func TestReserve(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(10, time.Second, 5), hybrid.Config{Mode: mode, Overshoot: map[bool]float64{true: -1}[mode == hybrid.ModeAuto]})
		time.Sleep(2300 * time.Millisecond)
		reserve := func(want time.Duration) *hybridlimit.Reservation {
			t.Helper()
			r, err := l.Reserve(t.Context(), "k", 2)
			if err != nil || !r.Allowed || r.Granted != 2 || r.Delay != want {
				t.Errorf("%+v, %v, want a delay of %v", r.Result, err, want)
			}
			return r
		}
		for _, want := range []time.Duration{0, 0, 100 * time.Millisecond, 300 * time.Millisecond} {
			reserve(want)
			if mode == hybrid.ModeDeferred {
				return // Redis is told later, and the rest needs its answer at once
			}
		}
		last := reserve(500 * time.Millisecond)
		if r, err := l.Reserve(t.Context(), "k", 1); err != nil || r.Allowed || r.RetryAfter <= 0 {
			t.Errorf("more than a burst ahead: %+v, %v", r.Result, err)
		}
		if err := errors.Join(last.Cancel(t.Context()), last.Cancel(t.Context())); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond) // longer than T: Redis is told
		reserve(400 * time.Millisecond)
		if _, err := l.Reserve(t.Context(), "k", 6); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
			t.Error(err)
		}
	})
}

// TestWait checks that Wait paces callers to the rate, that it refuses at once when units
// cannot be available in time, and that it gives unused units back.
func TestWait(t *testing.T) {
	for _, limit := range algorithms {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			inModes(t, modesOf(limit), func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
				rdb := b.Client(nil)
				l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
				time.Sleep(3 * time.Second)
				began, units := time.Now(), 3*limit.BurstSize()
				for range units {
					if res, err := l.Wait(t.Context(), "k", 1); err != nil || !res.Allowed || res.Delay != 0 {
						t.Fatalf("%v: %+v, %v", mode, res, err)
					}
				}
				took := time.Since(began)
				least := time.Duration(units-limit.BurstSize()-5) * limit.Period / time.Duration(limit.Rate)
				if limit.Algorithm >= hybridlimit.AlgFixedWindow {
					least = limit.Period
				}
				if took < least || took > 4*limit.Period {
					t.Errorf("%v: three bursts took %v, at least %v", mode, took, least)
				}
				if mode == hybrid.ModeAuto || mode == hybrid.ModeStrict {
					soon, cancel := context.WithTimeout(t.Context(), time.Microsecond)
					for range limit.BurstSize() * 2 { // use up the units in hand
						if _, err := l.Wait(soon, "k", 1); err != nil {
							break
						}
					}
					cancel()
				}
				shutdown(t, l)
				s := l.Stats()
				if s.Admitted < units || limit.TimeToFull() > time.Second && debited(t, rdb, "api", "k") != balance(t, s) {
					t.Errorf("%v: %+v", mode, s)
				}
				if _, err := l.Wait(t.Context(), "k", 1); !errors.Is(err, hybridlimit.ErrClosed) {
					t.Error(err)
				}
			})
		})
	}
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb := b.Client(nil)
		l := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Mode: hybrid.ModeStrict})
		ask(t, l, "k", 5)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := l.Wait(ctx, "k", 3); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		if s := inRedis(t, rdb, "api", "k"); s.Since != 5 {
			t.Errorf("after the booked units were given back: %+v", s)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if res, err := l.Wait(soon, "k", 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 0 || res.RetryAfter <= 0 {
			t.Errorf("%+v, %v after %v", res, err, time.Since(began))
		}
		if _, err := l.Wait(t.Context(), "k", 6); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { l.Close() })
		if _, err := l.Wait(t.Context(), "k", 1); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestRefund takes a predicted cost and gives a part back later. Whatever comes in between,
// Redis must have debited the units that were kept.
func TestRefund(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		rdb := b.Client(nil)
		l := newLimiter(t, b.Client(nil), still(1000), hybrid.Config{Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		rng := rand.New(rand.NewPCG(1, uint64(mode)))
		var kept int64
		for range 60 {
			n := 1 + rng.Int64N(20)
			if !ask(t, l, "k", n).Allowed {
				continue
			}
			back := rng.Int64N(n + 1)
			time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
			if back > 0 {
				must(t)(l.Refund(t.Context(), "k", back))
			}
			kept += n - back
		}
		shutdown(t, l)
		s := l.Stats()
		if got := debited(t, rdb, "api", "k"); s.Admitted != kept || got != balance(t, s) || got < kept {
			t.Errorf("kept %d, Redis debited %d; %+v", kept, got, s)
		}
		if got := inRedis(t, rdb, "api", "k"); 1000-got.Level/got.Unit > kept+s.Expired+s.Lost+1 {
			t.Errorf("%d kept, and Redis has %d of 1000 left; %+v", kept, got.Level/got.Unit, s)
		}
	})
}

// TestReset checks that Reset forgets the key in Redis and in this process, and makes the
// earlier views of other processes void.
func TestReset(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		var ls []*hybrid.Limiter
		for range 2 {
			ls = append(ls, newLimiter(t, b.Client(nil), still(10), hybrid.Config{Mode: mode, Overshoot: map[bool]float64{true: -1}[mode == hybrid.ModeAuto]}))
		}
		time.Sleep(2300 * time.Millisecond)
		for _, l := range ls {
			for range 10 {
				ask(t, l, "k", 1)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if res := ask(t, ls[1], "k", 1); res.Allowed {
			t.Fatalf("%+v", res)
		}
		if err := ls[0].Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // longer than the other process trusts its denial
		got := int64(0)
		for range 40 {
			got += ask(t, ls[1], "k", 1).Granted + ask(t, ls[0], "k", 1).Granted
			time.Sleep(100 * time.Millisecond)
		}
		if got < 8 || got > 10+ls[0].Stats().Credit {
			t.Errorf("%d of 10 units were admitted after the reset; %+v, %+v", got, ls[0].Stats(), ls[1].Stats())
		}
	})
}

// TestRefundEndsADenial checks that units given back are available at once, although Redis
// has proved before that no unit was left: Redis is asked again.
func TestRefundEndsADenial(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(5, time.Minute, 5), hybridlimit.LeakyQueue(5, time.Minute, 5),
		hybridlimit.FixedWindow(5, 24*time.Hour), hybridlimit.SlidingWindow(5, 24*time.Hour), hybridlimit.SlidingLog(5, 24*time.Hour),
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, redistest.NewBubble(t).Client(nil), limit, hybrid.Config{Name: "api"})
			must(t)(l.Charge(t.Context(), "k", 7))
			time.Sleep(200 * time.Millisecond)
			if res := ask(t, l, "k", 1); res.Allowed || res.Remaining != 0 {
				t.Errorf("%v: in debt: %+v", limit, res)
			}
			if res := must(t)(l.Refund(t.Context(), "k", 3)); res.Remaining != 1 {
				t.Errorf("%v: given back: %+v", limit, res)
			}
			for i, want := range []bool{true, false} {
				if res := ask(t, l, "k", 1); res.Allowed != want {
					t.Errorf("%v: call %d: %+v", limit, i, res)
				}
			}
			shutdown(t, l)
		})
	}
}

// TestCancelBesideACharge checks that the cancel of a booking takes nothing off units that were charged after it: Redis gives
// back only what no later use needs.
func TestCancelBesideACharge(t *testing.T) {
	inModes(t, inMemory, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		rdb := b.Client(nil)
		l := newLimiter(t, b.Client(nil), still(20), hybrid.Config{Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "k", 20)
		r, err := l.Reserve(t.Context(), "k", 5)
		if err != nil || !r.Allowed || r.Delay < 4*time.Hour {
			t.Fatalf("%+v, %v", r, err)
		}
		must(t)(l.Charge(t.Context(), "k", 5))
		if err := r.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if s := inRedis(t, rdb, "api", "k"); s.Level > -9*s.Unit { // -10, and the refill of a second
			t.Errorf("the level is %d units, want -10: the charge is later than the booking", s.Level/s.Unit)
		}
	})
}

// TestRefundOfLeasedUnits gives back most of the units that calls took from leases, while the bucket is nearly full. The
// ledger has the leases, so that the bucket must have room for units that come back from them.
func TestRefundOfLeasedUnits(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		rdb := b.Client(nil)
		l := newLimiter(t, b.Client(nil), still(10_000), hybrid.Config{Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		for range 60 {
			if !ask(t, l, "k", 300).Allowed {
				t.Fatal("denied")
			}
			time.Sleep(time.Millisecond)
			must(t)(l.Refund(t.Context(), "k", 290))
		}
		shutdown(t, l)
		if got, s := inRedis(t, rdb, "api", "k"), l.Stats(); got.Level/got.Unit != 10_000-600-s.Expired-s.Lost {
			t.Errorf("Redis has %d left, want %d; %+v", got.Level/got.Unit, 10_000-600, s)
		}
	})
}
