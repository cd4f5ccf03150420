package spend_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/otellimit"
	"github.com/hybridlimit/hybridlimit/spend"
)

// ask is for n units of key k.
func ask(l hybridlimit.Limiter, n int64) hybridlimit.Ask {
	return hybridlimit.Ask{Limiter: l, Key: "k", N: n}
}

func inLocal(t *testing.T, limit hybridlimit.Limit, cfg local.Config) *local.Limiter {
	l, err := local.New(limit, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// begin fails the test if the call is not admitted.
func begin(t *testing.T, asks ...hybridlimit.Ask) *spend.Spend {
	t.Helper()
	s, res, err := spend.Begin(t.Context(), asks...)
	if err != nil || !res.Allowed || s == nil {
		t.Fatalf("Begin: %+v, %v", res, err)
	}
	return s
}

func TestBadTotalsAreRefusedAndChangeNothing(t *testing.T) {
	l := inLocal(t, hybridlimit.PerDay(100), local.Config{})
	s := begin(t, ask(l, 10))
	for _, tc := range []struct {
		i     int
		total int64
		want  error
		says  string
	}{
		{-1, 5, hybridlimit.ErrInvalid, "i (-1) must be the index of one of the 1 asks"},
		{1, 5, hybridlimit.ErrInvalid, "i (1) must be the index of one of the 1 asks"},
		{math.MaxInt, 5, hybridlimit.ErrInvalid, "of one of the 1 asks"},
		{0, -1, hybridlimit.ErrCost, "ask 0: total -1: "},
		{0, math.MinInt64, hybridlimit.ErrCost, "ask 0: total -9223372036854775808: "},
	} {
		res, err := s.Use(t.Context(), tc.i, tc.total)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || res.Allowed {
			t.Errorf("Use(%d, %d): %+v, %v", tc.i, tc.total, res, err)
		}
	}
	if got := left(t, l); got != 90 {
		t.Errorf("%d left, want 90", got)
	}
	if err := s.Settle(t.Context()); err != nil || left(t, l) != 90 {
		t.Errorf("Settle without a valid Use: %v, %d left, want 90", err, left(t, l))
	}
}

// TestTheLargestTotalIsADebt checks that a total at the end of int64 neither overflows nor gives units back.
func TestTheLargestTotalIsADebt(t *testing.T) {
	l := inLocal(t, hybridlimit.PerDay(100), local.Config{})
	s := begin(t, ask(l, 10))
	for range 2 {
		if _, err := s.Use(t.Context(), 0, math.MaxInt64); err != nil {
			t.Error(err)
		}
	}
	if err := s.Settle(t.Context()); err != nil || left(t, l) != 0 {
		t.Errorf("%v, %d left", err, left(t, l))
	}
	if res, err := l.Allow(t.Context(), "k"); err != nil || res.RetryAfter < 24*time.Hour || res.RetryAfter > 25*time.Hour {
		t.Errorf("%+v, %v, want a debt of one burst", res, err)
	}
}

func TestTotalsDoNotFall(t *testing.T) {
	l := inLocal(t, hybridlimit.PerDay(100), local.Config{})
	s := begin(t, ask(l, 10))
	for _, total := range []int64{5, 30, 0, 20, 30} {
		if _, err := s.Use(t.Context(), 0, total); err != nil {
			t.Error(err)
		}
	}
	if err := s.Settle(t.Context()); err != nil || left(t, l) != 70 {
		t.Errorf("%v, %d left, want 70", err, left(t, l))
	}
}

func TestADeniedCallHasNoSpend(t *testing.T) {
	l := inLocal(t, hybridlimit.PerDay(100), local.Config{})
	if s, res, err := spend.Begin(t.Context(), ask(l, 101)); s != nil || res.Allowed || res.RetryAfter != hybridlimit.Never || err != nil {
		t.Errorf("Begin of more than the burst: %v, %+v, %v", s, res, err)
	}
	for _, tc := range []struct {
		n    int64
		want error
	}{{0, hybridlimit.ErrCost}, {-1, hybridlimit.ErrCost}} {
		if s, res, err := spend.Begin(t.Context(), ask(l, tc.n)); s != nil || res.Allowed || !errors.Is(err, tc.want) {
			t.Errorf("Begin of %d: %v, %+v, %v", tc.n, s, res, err)
		}
	}
	if _, _, err := spend.Begin(t.Context()); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("Begin without asks: %v", err)
	}
	begin(t, ask(l, 100))
	s, res, err := spend.Begin(t.Context(), ask(l, 1))
	if s != nil || res.Allowed || err != nil {
		t.Fatalf("%v, %+v, %v", s, res, err)
	}
	if _, err := s.Use(t.Context(), 7, -1); err != nil {
		t.Errorf("Use of no call: %v", err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Errorf("Settle of no call: %v", err)
	}
}

// TestPermitsEndWithTheCall has permits and units in one call. Settle releases the permits, also if units do not come
// back.
func TestPermitsEndWithTheCall(t *testing.T) {
	l := inLocal(t, hybridlimit.PerDay(100), local.Config{Name: "units"})
	calls, err := local.NewConcurrency(hybridlimit.Concurrent(2), local.ConcurrencyConfig{Name: "calls"})
	if err != nil {
		t.Fatal(err)
	}
	asks := []hybridlimit.Ask{ask(calls, 2), ask(l, 10)}
	s := begin(t, asks...)
	asks[0].Permit.Release() // the Spend has it
	if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 {
		t.Errorf("%d permits are free while the call runs: %v", res.Remaining, err)
	}
	if _, err := s.Use(t.Context(), 0, 50); err != nil {
		t.Errorf("Use of permits: %v", err)
	}
	if _, err := s.Use(t.Context(), 1, 4); err != nil {
		t.Error(err)
	}
	l.Close()
	if err := s.Settle(t.Context()); !errors.Is(err, hybridlimit.ErrClosed) || !strings.Contains(err.Error(), "spend: ask 1: ") {
		t.Errorf("Settle of a limiter that is closed: %v", err)
	}
	if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 2 {
		t.Errorf("%d permits are free after the call: %v", res.Remaining, err)
	}
}

// TestOneAskFailsAlone settles the other asks of a call.
func TestOneAskFailsAlone(t *testing.T) {
	a, b := inLocal(t, hybridlimit.PerDay(100), local.Config{Name: "a"}), inLocal(t, hybridlimit.PerDay(100), local.Config{Name: "b"})
	s := begin(t, ask(a, 10), ask(b, 10))
	for i := range 2 {
		if _, err := s.Use(t.Context(), i, 1); err != nil {
			t.Error(err)
		}
	}
	a.Close()
	if err := s.Settle(t.Context()); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Error(err)
	}
	if got := left(t, b); got != 99 {
		t.Errorf("%d left of b, want 99", got)
	}
}

// TestWrappedLimiters charges and gives back through a limiter that counts for OpenTelemetry.
func TestWrappedLimiters(t *testing.T) {
	l := inLocal(t, hybridlimit.PerDay(100), local.Config{})
	r, err := otellimit.NewRecorder(otellimit.Config{MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.Wrap("w", l)
	if err != nil {
		t.Fatal(err)
	}
	for _, total := range []int64{4, 16} {
		s := begin(t, ask(w, 10))
		if _, err := s.Use(t.Context(), 0, total); err != nil {
			t.Error(err)
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := left(t, l); got != 80 {
		t.Errorf("%d left, want 80", got)
	}
}

// plain is a limiter of a user: it joins no other.
type plain struct{ hybridlimit.Limiter }

// refunding is one that takes units back.
type refunding struct {
	plain
	back int64
}

func (r *refunding) Refund(_ context.Context, _ string, n int64) (hybridlimit.Result, error) {
	r.back += n
	return hybridlimit.Result{}, nil
}

// TestLimitersOfUsers tells of each thing that a limiter cannot do.
func TestLimitersOfUsers(t *testing.T) {
	real := plain{inLocal(t, hybridlimit.PerDay(100), local.Config{})}
	s := begin(t, ask(real, 10))
	if _, err := s.Use(t.Context(), 0, 11); !errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), "has no Charge") {
		t.Errorf("Use: %v", err)
	}
	s = begin(t, ask(real, 10))
	if _, err := s.Use(t.Context(), 0, 9); err != nil {
		t.Errorf("Use: %v", err)
	}
	if err := s.Settle(t.Context()); !errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), "takes no units back") {
		t.Errorf("Settle: %v", err)
	}
	r := &refunding{plain: real}
	s = begin(t, ask(r, 10))
	if _, err := s.Use(t.Context(), 0, 3); err != nil {
		t.Errorf("Use: %v", err)
	}
	if err := s.Settle(t.Context()); err != nil || r.back != 7 {
		t.Errorf("Settle: %v, %d came back", err, r.back)
	}
	s = begin(t, ask(limittest.AllowAll(), 10))
	if _, err := s.Use(t.Context(), 0, 30); err != nil {
		t.Errorf("Use: %v", err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Errorf("Settle: %v", err)
	}
}

// TestShadowTakesNothing settles a call that a limit in shadow would have denied.
func TestShadowTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l, err := hybrid.New(b.Client(nil), hybridlimit.PerDay(100), hybrid.Config{Name: "api", Shadow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.Sleep(3 * time.Second)
		begin(t, ask(l, 95))
		s := begin(t, ask(l, 10))
		for _, total := range []int64{2, 15} {
			if _, err := s.Use(t.Context(), 0, total); err != nil {
				t.Error(err)
			}
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		if got := left(t, l); got != 5 {
			t.Errorf("%d left, want 5", got)
		}
	})
}

// TestFallbackKeepsItsUnits settles calls that began while Redis was away, in the outage and after it.
func TestFallbackKeepsItsUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := redistest.NewBubble(t).Link()
		l, err := hybrid.New(link.Client(nil), hybridlimit.PerDay(100), hybrid.Config{Name: "api"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.Sleep(3 * time.Second)
		link.Pause()
		time.Sleep(10 * time.Second)
		var calls [2]*spend.Spend
		for i := range calls {
			s, res, err := spend.Begin(t.Context(), ask(l, 10))
			if err != nil || res.Source != hybridlimit.SourceFallback {
				t.Fatalf("Begin: %+v, %v", res, err)
			}
			if _, err := s.Use(t.Context(), 0, 1); err != nil {
				t.Errorf("Use: %v", err)
			}
			calls[i] = s
		}
		if err := calls[0].Settle(t.Context()); err != nil {
			t.Errorf("Settle in the outage: %v", err)
		}
		link.Resume()
		time.Sleep(time.Minute)
		if err := calls[1].Settle(t.Context()); err != nil {
			t.Errorf("Settle after it: %v", err)
		}
		time.Sleep(3 * time.Second)
		if got := left(t, l); got < 80 || got > 81 { // a unit refills in 15 minutes
			t.Errorf("%d left, want 80: the fallback keeps its units", got)
		}
	})
}

// TestOneSettleOfMany lets goroutines tell and settle at the same time.
func TestOneSettleOfManyConcurrent(t *testing.T) {
	l := inLocal(t, hybridlimit.PerDay(1_000_000), local.Config{})
	for range 200 {
		before := left(t, l)
		s := begin(t, ask(l, 100))
		var settled, told int64
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if _, err := s.Use(t.Context(), 0, int64(40*(i+1))); err == nil {
					mu.Lock()
					told = max(told, int64(40*(i+1)))
					mu.Unlock()
				} else if !errors.Is(err, spend.ErrSettled) {
					t.Error(err)
				}
			})
			if i%2 == 1 {
				all.Go(func() {
					switch err := s.Settle(t.Context()); {
					case err == nil:
						mu.Lock()
						settled++
						mu.Unlock()
					case !errors.Is(err, spend.ErrSettled):
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		want := told
		if told == 0 {
			want = 100
		}
		if got := before - left(t, l); settled != 1 || got != want {
			t.Fatalf("%d settled, %d units are used, want %d", settled, got, want)
		}
	}
}

// failing is a limiter whose first Charge fails.
type failing struct {
	plain
	charges []int64
}

func (f *failing) Charge(_ context.Context, _ string, n int64) (hybridlimit.Result, error) {
	if f.charges = append(f.charges, n); len(f.charges) == 1 {
		return hybridlimit.Result{}, hybridlimit.ErrUnavailable
	}
	return hybridlimit.Result{Allowed: true, Granted: n}, nil
}

// TestAChargeThatFailedIsMadeAgain tells of the same total twice.
func TestAChargeThatFailedIsMadeAgain(t *testing.T) {
	f := &failing{plain: plain{inLocal(t, hybridlimit.PerDay(100), local.Config{})}}
	s := begin(t, ask(f, 10))
	if _, err := s.Use(t.Context(), 0, 15); !errors.Is(err, hybridlimit.ErrUnavailable) {
		t.Error(err)
	}
	for range 2 {
		if _, err := s.Use(t.Context(), 0, 17); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(f.charges, []int64{5, 7}) {
		t.Errorf("charged %v, want 5, which failed, and 7", f.charges)
	}
}

// TestLimitsThatFailOpen settles a call that two limits admitted because Redis was away.
func TestLimitsThatFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb := b.Client(func(o *redis.Options) { o.MaxRetries = -1 })
		var asks []hybridlimit.Ask
		for _, name := range []string{"a", "b"} {
			l, err := global.New(rdb, hybridlimit.PerDay(100), global.Config{Name: name, FailOpen: true})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			asks = append(asks, ask(l, 10))
		}
		b.Kill()
		s, res, err := spend.Begin(t.Context(), asks...)
		if !errors.Is(err, hybridlimit.ErrUnavailable) || !res.Allowed || s == nil {
			t.Fatalf("Begin: %+v, %v", res, err)
		}
		for i := range asks {
			if got := asks[i].Result; !got.Allowed || got.Source != hybridlimit.SourceFallback || got.Granted != 10 {
				t.Errorf("ask %d: %+v", i, got)
			}
			if _, err := s.Use(t.Context(), i, 4); err != nil {
				t.Error(err)
			}
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Errorf("Settle: %v", err)
		}
	})
}
