package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// hold acquires n permits of "k" one by one, and fails the test if one is denied.
func hold(t *testing.T, l *hybrid.ConcurrencyLimiter, n int) []hybridlimit.Permit {
	t.Helper()
	held := make([]hybridlimit.Permit, n)
	for i := range held {
		var res hybridlimit.Result
		if held[i], res = acquire(t, l, "k", 1); !res.Allowed {
			t.Fatalf("call %d of %d: %+v", i, n, res)
		}
	}
	return held
}

func releaseAll(held []hybridlimit.Permit) {
	for _, p := range held {
		p.Release()
		p.Release() // a second time has no effect
	}
}

// runAll counts the calls of one permit that a process admits until it is denied.
func runAll(t *testing.T, l *hybrid.ConcurrencyLimiter) (held []hybridlimit.Permit) {
	t.Helper()
	for {
		p, res := acquire(t, l, "k", 1)
		if !res.Allowed {
			return held
		}
		held = append(held, p)
	}
}

// TestCallsOutliveAnOutage lets Redis be away for a minute while calls run. The fallback gives each process its share, less what runs.
// After it, the fleet has all permits again, and no more.
func TestCallsOutliveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		fleet := callFleet(t, b, 2, hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
		before := hold(t, fleet[0], 7)
		b.Kill()
		time.Sleep(10 * time.Second)
		if more := runAll(t, fleet[0]); len(more) != 0 {
			t.Errorf("%d calls beside 7 running ones, of a share of 5", len(more))
		}
		others := runAll(t, fleet[1])
		if len(others) != 5 {
			t.Errorf("%d calls of a share of 5", len(others))
		}
		if s := fleet[1].Stats(); s.Allowed[hybridlimit.SourceFallback] < 5 || s.Member {
			t.Errorf("%+v", s)
		}
		time.Sleep(50 * time.Second)
		b.Restart()
		time.Sleep(10 * time.Second)
		if p, res := acquire(t, fleet[0], "k", 1); res.Allowed {
			p.Release()
			t.Error("a call is admitted beside 12 running ones of 10")
		}
		releaseAll(others[:3])
		time.Sleep(2 * time.Second)
		if more := len(runAll(t, fleet[0])); more != 1 {
			t.Errorf("%d calls beside 9 running ones of 10", more)
		}
		releaseAll(before)
	})
}

// TestWipe wipes Redis while calls run. Redis learns them, and then grants the rest.
func TestWipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		fleet := callFleet(t, b, 2, hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{Fallback: hybrid.FallbackDenyAll})
		held := hold(t, fleet[0], 6)
		b.Mini.FlushAll()
		time.Sleep(8 * time.Second)
		p, _ := acquire(t, fleet[1], "k", 1)
		p.Release()
		time.Sleep(8 * time.Second)
		if more := len(runAll(t, fleet[1])); more != 4 {
			t.Errorf("%d calls beside 6 running ones of 10", more)
		}
		releaseAll(held)
	})
}

// TestPermitsMoveToAnotherProcess releases some of the calls of a process while another one waits.
func TestPermitsMoveToAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 2, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{MaxWait: 10 * time.Second})
		held := hold(t, fleet[0], 4)
		releaseAll(held[:2])
		began := time.Now()
		p, res := acquire(t, fleet[1], "k", 2)
		if !res.Allowed || time.Since(began) > time.Second {
			t.Errorf("%+v after %v", res, time.Since(began))
		}
		p.Release()
		releaseAll(held[2:])
	})
}

// TestLimitChangesWhileCallsRun lowers and raises the limit.
func TestLimitChangesWhileCallsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 2, hybridlimit.Concurrent(6), hybrid.ConcurrencyConfig{})
		held := hold(t, fleet[0], 6)
		if err := fleet[0].SetFleetLimit(t.Context(), hybrid.FleetLimit{Limit: hybridlimit.Concurrent(3)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		for i, l := range fleet {
			if got := l.LimitState(); got.InForce != hybridlimit.Concurrent(3) || got.Source != hybrid.LimitFromFleet {
				t.Errorf("process %d: %+v", i, got)
			}
		}
		releaseAll(held[:3])
		time.Sleep(2 * time.Second)
		if p, res := acquire(t, fleet[1], "k", 1); res.Allowed || res.Limit != 3 {
			p.Release()
			t.Errorf("beside 3 calls of 3: %+v", res)
		}
		releaseAll(held[3:])
		if err := fleet[0].SetFleetLimit(t.Context(), hybrid.FleetLimit{Limit: hybridlimit.Concurrent(8)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		more := runAll(t, fleet[1])
		if len(more) != 8 {
			t.Errorf("%d calls of 8", len(more))
		}
		releaseAll(more)
		var invalid *hybridlimit.InvalidError
		if err := fleet[0].SetLimit(hybridlimit.PerSecond(5)); !errors.As(err, &invalid) {
			t.Errorf("a rate: %v", err)
		}
		if err := fleet[1].SetFleetLimit(t.Context(), hybrid.FleetLimit{Limit: hybridlimit.PerSecond(5)}); !errors.As(err, &invalid) {
			t.Errorf("a rate for the fleet: %v", err)
		}
	})
}

// TestShutdownWaitsForCalls shuts down a limiter, and a hub, while calls run.
func TestShutdownWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 3, hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{})
		for i, shutdown := range []func(context.Context) error{fleet[0].Shutdown, fleet[1].Hub().Shutdown} {
			held := hold(t, fleet[i], 3)
			time.AfterFunc(3*time.Second, func() { releaseAll(held) })
			began := time.Now()
			if err := shutdown(t.Context()); err != nil || time.Since(began) < 3*time.Second || time.Since(began) > 4*time.Second {
				t.Errorf("%d: %v after %v", i, err, time.Since(began))
			}
			time.Sleep(time.Second)
			p, res := acquire(t, fleet[2], "k", 3)
			if !res.Allowed {
				t.Errorf("%d: %+v", i, res)
			}
			p.Release()
			time.Sleep(3 * time.Second)
		}
		p, _ := acquire(t, fleet[2], "k", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := fleet[2].Hub().Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a running call: %v", err)
		}
		p.Release()
	})
}

// TestStaticCallsAndKeys checks limits without state, keys with their own limits, and the bound on keys.
func TestStaticCallsAndKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := map[string]hybridlimit.Limit{
			"free": hybridlimit.Unlimited(), "shut": hybridlimit.Blocked(), "two": hybridlimit.Concurrent(2), "bad": hybridlimit.PerSecond(1),
		}
		base := hybridlimit.Concurrent(5)
		l := callFleet(t, redistest.NewBubble(t), 1, base, hybrid.ConcurrencyConfig{MaxKeys: 3, LimitFor: func(key string) hybridlimit.Limit {
			if own, ok := limits[key]; ok {
				return own
			}
			return base
		}})[0]
		if p, res := acquire(t, l, "free", 1<<40); !res.Allowed || res.Source != hybridlimit.SourceStatic {
			t.Errorf("%+v", res)
		} else {
			p.Release()
		}
		for key, n := range map[string]int64{"shut": 1, "two": 3, "k": 6} {
			if _, res := acquire(t, l, key, n); res.Allowed || res.RetryAfter != hybridlimit.Never || res.Source != hybridlimit.SourceStatic {
				t.Errorf("%s: %+v", key, res)
			}
		}
		if _, _, err := l.Acquire(t.Context(), "bad"); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("the limit of a rate: %v", err)
		}
		var held []hybridlimit.Permit
		for _, key := range []string{"two", "a", "b"} {
			p, res := acquire(t, l, key, 2)
			if !res.Allowed {
				t.Errorf("%s: %+v", key, res)
			}
			held = append(held, p)
		}
		if _, _, err := l.Acquire(t.Context(), "c"); !errors.Is(err, hybridlimit.ErrTooManyKeys) {
			t.Errorf("one key more: %v", err)
		}
		releaseAll(held)
		time.Sleep(20 * time.Second)
		if l.Len() != 0 {
			t.Errorf("%d keys in memory", l.Len())
		}
		for key, want := range map[string]error{"": hybridlimit.ErrEmptyKey, string(make([]byte, 600)): hybridlimit.ErrKeyTooLong} {
			if _, _, err := l.Acquire(t.Context(), key); !errors.Is(err, want) {
				t.Errorf("%v instead of %v", err, want)
			}
		}
		for _, n := range []int64{0, -1, math.MinInt64} {
			if _, _, err := l.AcquireN(t.Context(), "k", n); !errors.Is(err, hybridlimit.ErrCost) {
				t.Errorf("%d permits: %v", n, err)
			}
		}
		if p, res := acquire(t, l, "k", math.MaxInt64); res.Allowed || res.RetryAfter != hybridlimit.Never {
			p.Release()
			t.Errorf("a huge call: %+v", res)
		}
	})
}

// TestSwitchesOfCalls sets each switch.
func TestSwitchesOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 2, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{})
		held := hold(t, fleet[0], 4)
		for _, test := range []struct {
			s       hybrid.Switch
			allowed bool
			source  hybridlimit.Source
			shadow  bool
		}{
			{hybrid.SwitchAllowAll, true, hybridlimit.SourceSwitch, false},
			{hybrid.SwitchDenyAll, false, hybridlimit.SourceSwitch, false},
			{hybrid.SwitchShadow, true, hybridlimit.SourceRedis, true},
			{hybrid.SwitchLocalOnly, true, hybridlimit.SourceFallback, false},
			{hybrid.SwitchNormal, false, hybridlimit.SourceRedis, false},
		} {
			if err := fleet[0].SetFleetSwitch(t.Context(), test.s); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			p, res := acquire(t, fleet[1], "k", 1)
			if res.Allowed != test.allowed || res.Source != test.source || res.Shadowed != test.shadow {
				t.Errorf("%v: %+v", test.s, res)
			}
			p.Release()
			time.Sleep(3 * time.Second)
		}
		releaseAll(held)
	})
}

// TestResetOfCalls makes Redis forget a key while calls run.
func TestResetOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		fleet := callFleet(t, b, 2, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{Fallback: hybrid.FallbackDenyAll})
		held := hold(t, fleet[0], 3)
		if err := fleet[1].Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if more := len(runAll(t, fleet[1])); more != 1 {
			t.Errorf("%d calls beside 3 of 4", more)
		}
		releaseAll(held)
		b.Kill()
		if err := fleet[0].Reset(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("without Redis: %v", err)
		}
	})
}

// TestAnotherIdentityTakesPermitsAlong makes Redis call all messages of a process stale, as if another process had its identity. The
// process gets another one, and its running calls stay counted, once.
func TestAnotherIdentityTakesPermitsAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		fleet := callFleet(t, b, 2, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{Fallback: hybrid.FallbackDenyAll, MaxWait: 10 * time.Second})
		held := hold(t, fleet[0], 3)
		changed := 0
		for _, key := range b.Mini.Keys() {
			if !strings.HasSuffix(key, "@holdings") {
				continue
			}
			fields, err := b.Mini.HKeys(key)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fields {
				if f != "" {
					b.Mini.HSet(key, f, fmt.Sprintf("1000000 %d", time.Now().UnixMicro()))
					changed++
				}
			}
		}
		if changed != 1 {
			t.Fatalf("%d processes have sent messages, want 1", changed)
		}
		more, res := acquire(t, fleet[0], "k", 1)
		if !res.Allowed {
			t.Errorf("%+v", res)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, res, err := fleet[1].Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside 4 calls of 4: %+v, %v", res, err)
		}
		more.Release()
		releaseAll(held)
		time.Sleep(3 * time.Second)
		p, res := acquire(t, fleet[1], "k", 4)
		if !res.Allowed {
			t.Errorf("after all releases: %+v", res)
		}
		p.Release()
		if s := fleet[0].Hub().Stats(); s.Renamed == 0 {
			t.Errorf("%+v", s)
		}
	})
}
