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
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// A share below one unit is saved up until it is one, under several limits as
// under one. It had started anew with every call that was denied.
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

// A shadow limit that Redis refuses, or that has no memory, lets nobody around
// the others, and stops nobody. Both had happened.
func TestAllowAllShadowRefused(t *testing.T) {
	t.Run("by Redis, again and again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := redistest.NewBubble(t)
			link := b.Link()
			h := newHub(t, link.Client(nil), hybrid.HubConfig{})
			real := add(t, h, still(1000), hybrid.Config{Name: "real"})
			// A unit is back before the answer that there is none.
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

// That a shadow limit would have denied is said whichever limit the result is
// of.
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

// A Subject that does not always say the same must not deadlock.
func TestAllowAllFickleSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		var calls atomic.Int64
		l := add(t, h, still(50), hybrid.Config{Name: "l", Subject: func(string) string { return strconv.FormatInt(calls.Add(1), 10) }})
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

// SetLimit leaves keys alone that LimitFor gives a limit, also where that was
// the limiter's. Such a key had followed SetLimit until it was evicted.
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

// In fallback nobody gets more than the burst of the limit that is asked,
// though FallbackFloor is above it.
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

// Whatever is charged, the books stay right, and so do other keys' syncs.
func TestChargeBeyondAllBounds(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), still(10), hybrid.Config{Mode: mode, Subject: func(string) string { return "one" }})
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
