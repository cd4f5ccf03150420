package hybrid

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestWhatEndsCredit checks the end of a credit budget, which is valid for seconds. An event that
// makes its units worthless ends it at once. If only time makes them worthless, it ends within two
// ticks.
func TestWhatEndsCredit(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, l *Limiter, link *redistest.MemLink)
		in   time.Duration
	}{
		{"the breaker opens", func(_ *testing.T, l *Limiter, _ *redistest.MemLink) {
			for br := l.hub.breakers[0]; br.State() != breaker.Open; {
				call, _ := br.Begin()
				call.End(0, errors.New("down"))
			}
		}, 0},
		{"another process joins", func(t *testing.T, l *Limiter, link *redistest.MemLink) {
			other, err := New(link.Client(nil), l.control.Plan().Limit, Config{Name: "api", Mode: ModeDeferred, Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close() })
		}, 2 * census.Every},
		{"heartbeats stay away", func(_ *testing.T, l *Limiter, _ *redistest.MemLink) {
			l.hub.cancel() // ends the heartbeat's goroutine
		}, census.Stale + 2*keys.Tick},
		{"the limit is another", func(t *testing.T, l *Limiter, _ *redistest.MemLink) {
			if err := l.SetLimit(hybridlimit.PerSecond(500)); err != nil {
				t.Error(err)
			}
		}, 0},
		{"the limiter closes", func(t *testing.T, l *Limiter, _ *redistest.MemLink) {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				// No sync comes in between, so nothing else takes the budget back.
				l, err := New(link.Client(nil), hybridlimit.PerSecond(1000), Config{
					Name: "api", Mode: ModeDeferred, SyncInterval: time.Minute, SyncEvery: 1000,
					Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				time.Sleep(3 * time.Second)
				ctx := context.Background()
				for range 3 {
					if _, err := l.Allow(ctx, "k"); err != nil {
						t.Fatal(err)
					}
				}
				e := l.terms.Store.Get("k")
				good := func() bool {
					synctest.Wait()
					w := e.Word.Load()
					return account.KindOf(w) == account.CreditBudget && !account.Over(w, l.hub.clock.Epoch())
				}
				if !good() {
					t.Fatalf("the key has no credit budget: %x", e.Word.Load())
				}
				time.Sleep(100 * time.Millisecond)
				if !good() {
					t.Fatal("the budget was valid for less than 0.1 s")
				}
				tc.do(t, l, link)
				for end := time.Now().Add(tc.in); time.Now().Before(end); time.Sleep(keys.Tick) {
					l.hub.clock.Stamp() // a call on the slow path keeps the ticker running
				}
				if good() {
					t.Errorf("the budget is still valid %v later", tc.in)
				}
			})
		})
	}
}

// TestAWordIsGoodUntilItsEpoch checks that a budget is valid from the epoch of its stamp to its last
// epoch, although the epochs wrap around. For half of the epochs after that it is past.
func TestAWordIsGoodUntilItsEpoch(t *testing.T) {
	const round = 1 << clock.EpochBits
	for _, at := range []uint64{1, 1000, round - 3, round - 1, round, 5*round - 2, math.MaxUint64 - 1} {
		for _, ticks := range []uint64{0, 1, clock.Span} {
			w := account.Budget{Kind: account.LeaseBudget, Units: account.MaxUnits}.Pack(at + ticks)
			for _, tc := range []struct {
				later uint64
				past  bool
			}{{0, false}, {ticks, false}, {ticks + 1, true}, {ticks + round/2, true}, {ticks + round/2 + 1, false}} {
				if got := account.Over(w, at+tc.later); got != tc.past {
					t.Errorf("of epoch %d for %d, in epoch %d: past %t", at, ticks, at+tc.later, got)
				}
			}
			if account.UnitsOf(w) != account.MaxUnits || account.KindOf(w) != account.LeaseBudget {
				t.Errorf("%x: %d units of kind %d", w, account.UnitsOf(w), account.KindOf(w))
			}
		}
	}
}

// TestADenialSaysThatUnitsAreUsed checks that ResetAfter of a denial is positive, by the slow and by the fast path, also when this
// process may not ask yet and its view has filled up meanwhile.
func TestADenialSaysThatUnitsAreUsed(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(100, time.Second, 50), hybridlimit.FixedWindow(50, time.Second), hybridlimit.SlidingWindow(50, time.Second),
	} {
		synctest.Test(t, func(t *testing.T) {
			b := redistest.NewBubble(t)
			l, err := New(b.Client(nil), limit, Config{Name: "api", Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			e := l.terms.Store.Get("k")
			p := e.Plan.Load()
			for _, n := range []int64{1, 7, p.Burst} {
				check := func(path string, got hybridlimit.Result) {
					if least := p.Refilled(float64(n - 1)); got.Allowed || got.ResetAfter < min(least, limit.Period) {
						t.Errorf("%v, %d units, %s: %+v, want ResetAfter of at least %v", limit.Algorithm, n, path, got, least)
					}
				}
				v := account.Verdict{Action: account.Deny, Left: p.Burst, Barred: p.Burst}
				check("slow", l.terms.Fill(hybridlimit.Result{}, p, v, n))
				e.Mu.Lock()
				e.Estimate(p, p.Burst)
				e.Word.Store(account.Budget{Kind: account.DenyBudget}.Pack(l.clock.Epoch() + 5))
				e.Mu.Unlock()
				var fast hybridlimit.Result
				if !l.terms.Common(e, p, n, &fast) {
					t.Fatalf("%v, %d units: the word does not decide", limit.Algorithm, n)
				}
				check("fast", fast)
			}
		})
	}
}
