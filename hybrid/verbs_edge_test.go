package hybrid_test

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestAllowAllSavesUpAShare checks that a share below one unit is saved up until it is one unit,
// under several limits as under one. In an earlier version it started anew with every denied
// call.
func TestAllowAllSavesUpAShare(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *hybrid.Limiter) (hybridlimit.Result, error){
		"AllowN": func(t *testing.T, l *hybrid.Limiter) (hybridlimit.Result, error) {
			return l.AllowN(t.Context(), "k", 1)
		},
		"AllowAll": func(t *testing.T, l *hybrid.Limiter) (hybridlimit.Result, error) {
			return hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "k", N: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				h := newHub(t, b.Client(nil), hybrid.HubConfig{FleetSize: 10})
				l := add(t, h, hybridlimit.PerSecond(5), hybrid.Config{Name: "l", FallbackFloor: -1, MaxWait: -1})
				b.Kill()
				allowed := 0
				for range 100 {
					if res := must(t)(call(t, l)); res.Allowed {
						allowed++
					}
					time.Sleep(100 * time.Millisecond)
				}
				if allowed < 4 || allowed > 6 { // half a unit a second
					t.Errorf("%d admitted in 10 s; %+v", allowed, l.Stats())
				}
			})
		})
	}
}

// TestAllowAllShadowRefused checks a shadow limit under which Redis denies a call, or which has no
// room in memory. The call must still meet the other limits, and the shadow limit must not deny
// it. An earlier version had both faults.
func TestAllowAllShadowRefused(t *testing.T) {
	t.Parallel()
	t.Run("by Redis, again and again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := redistest.NewBubble(t)
			link := b.Link()
			h := newHub(t, link.Client(nil), hybrid.HubConfig{})
			real := add(t, h, still(1000), hybrid.Config{Name: "real"})
			// A unit is refilled before the answer comes that there is none.
			shadow := add(t, h, hybridlimit.TokenBucket(1000, time.Second, 1), hybrid.Config{Name: "shadow", Mode: hybrid.ModeStrict, Shadow: true})
			rival := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(1000, time.Second, 1), hybrid.Config{Name: "shadow", Mode: hybrid.ModeExact})
			time.Sleep(2300 * time.Millisecond)
			link.Latency(3*time.Millisecond, 4*time.Millisecond)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(400 * time.Microsecond):
						ask(t, rival, "k", 1)
					}
				}
			})
			admitted := int64(0)
			for i := range 30 {
				res := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: real, Key: "k", N: 1}, hybridlimit.Ask{Limiter: shadow, Key: "k", N: 1}))
				if !res.Allowed {
					t.Errorf("call %d: %+v", i, res)
				}
				admitted++
				time.Sleep(11 * time.Millisecond)
			}
			close(stop)
			wg.Wait()
			if s := real.Stats(); s.Admitted != admitted || s.Lost > 0 {
				t.Errorf("%d calls went on; %+v", admitted, s)
			}
			balance(t, shadow.Stats())
		})
	})
	t.Run("by memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := redistest.NewBubble(t)
			h := newHub(t, b.Client(nil), hybrid.HubConfig{})
			real := add(t, h, still(5), hybrid.Config{Name: "real", MaxWait: -1})
			shadow := add(t, h, still(5), hybrid.Config{Name: "shadow", Shadow: true, MaxKeys: 1, MaxWait: -1})
			b.Kill()
			for range 3 { // the only place is taken by a key that owes
				must(t)(shadow.Allow(t.Context(), "other"))
			}
			allowed := 0
			for range 20 {
				if res := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: real, Key: "k", N: 1}, hybridlimit.Ask{Limiter: shadow, Key: "k", N: 1})); res.Allowed {
					allowed++
				}
			}
			if s := real.Stats(); allowed != 5 || s.Admitted != 5 {
				t.Errorf("%d of 5 went on; %+v", allowed, s)
			}
		})
	})
}

// TestAllowAllSaysShadowed checks that Shadowed reports the denial of a shadow limit, whichever
// limit the Result is of.
func TestAllowAllSaysShadowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		a := add(t, h, still(2), hybrid.Config{Name: "a"})
		z := add(t, h, still(1), hybrid.Config{Name: "z", Shadow: true})
		for i := range 3 {
			res := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: a, Key: "k", N: 1}, hybridlimit.Ask{Limiter: z, Key: "k", N: 1}))
			if res.Allowed != (i < 2) || res.Shadowed != (i == 1) {
				t.Errorf("call %d: %+v", i, res)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// TestAllowAllFickleTags checks that a TagBy with changing results causes no deadlock.
func TestAllowAllFickleTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		var calls atomic.Int64
		l := add(t, h, still(50), hybrid.Config{Name: "l", TagBy: func(string) string { return strconv.FormatInt(calls.Add(1), 10) }})
		for range 5 {
			if res := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "k", N: 1}, hybridlimit.Ask{Limiter: l, Key: "k", N: 2})); !res.Allowed {
				t.Errorf("%+v", res)
			}
		}
		if s := l.Stats(); s.Admitted != 15 {
			t.Errorf("%+v", s)
		}
	})
}

// TestSetLimitLeavesLimitForAlone checks that SetLimit does not change keys with a limit from
// LimitFor, also if that limit was equal to the limiter's. In an earlier version such a key
// followed SetLimit until it was evicted.
func TestSetLimitLeavesLimitForAlone(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), still(10), hybrid.Config{Mode: mode, LimitFor: func(string) hybridlimit.Limit { return still(10) }})
		for _, key := range []string{"old", "new"} {
			if res := ask(t, l, key, 1); res.Limit != 10 || !res.Allowed {
				t.Errorf("%s: %+v", key, res)
			}
			if err := l.SetLimit(still(5)); err != nil {
				t.Fatal(err)
			}
			if res := ask(t, l, key, 6); res.Limit != 10 || !res.Allowed {
				t.Errorf("%s after SetLimit: %+v", key, res)
			}
		}
	})
}

// TestFallbackFloorOfASmallerLimit checks that a key gets at most the burst of its limit from the
// fallback, although FallbackFloor is above that burst.
func TestFallbackFloorOfASmallerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{
			FallbackFloor: 50, MaxWait: -1, LimitFor: func(string) hybridlimit.Limit { return still(10) },
		})
		b.Kill()
		var own, given int64
		for range 100 {
			own += ask(t, l, "own", 1).Granted
			given += must(t)(l.AllowLimit(t.Context(), "given", 1, still(10))).Granted
		}
		if own != 10 || given != 10 {
			t.Errorf("%d and %d of 10 admitted", own, given)
		}
	})
}

// TestChargeBeyondAllBounds checks that a charge of any size keeps the counters right, and the
// syncs of other keys.
func TestChargeBeyondAllBounds(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), still(10), hybrid.Config{Mode: mode, TagBy: func(string) string { return "one" }})
		time.Sleep(2300 * time.Millisecond)
		for range 5 {
			for _, n := range []int64{1 << 53, 1<<53 + 1, math.MaxInt64} {
				res, err := l.Charge(t.Context(), "k", n)
				if err != nil {
					t.Error(err)
				}
				if !res.Allowed || res.Granted != n {
					t.Errorf("%+v", res)
				}
			}
			must(t)(l.Charge(t.Context(), "other", 2))
		}
		time.Sleep(time.Second)
		if s := l.Stats(); s.Admitted < 0 || s.Owed != 0 || s.Dropped != 0 {
			t.Errorf("%+v", s)
		}
		if res := ask(t, l, "k", 1); res.Allowed {
			t.Errorf("%+v", res)
		}
		balance(t, l.Stats())
	})
}
