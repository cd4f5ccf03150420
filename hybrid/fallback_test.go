package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// admits calls every 10 ms during the given time, and returns the units
// admitted.
func admits(t *testing.T, l *hybrid.Limiter, key string, during time.Duration) (units int64) {
	t.Helper()
	for end := time.Now().Add(during); ; {
		res := ask(t, l, key, 1)
		units += res.Granted
		if !res.Allowed && (res.RetryAfter <= 0 || res.RetryAfter == hybridlimit.Never) {
			t.Fatalf("denied without a time to retry: %+v", res)
		}
		if !time.Now().Before(end) {
			return units
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestFallbacks(t *testing.T) {
	t.Parallel()
	ten := hybridlimit.TokenBucket(10, time.Second, 100)
	few := hybridlimit.TokenBucket(4, time.Hour, 4)
	for _, c := range []struct {
		name     string
		limit    hybridlimit.Limit
		fleet    int
		fallback hybrid.Fallback
		floor    int64
		first    int64 // admitted at once
		later    int64 // admitted in the following 20 s
	}{
		{"share of one", ten, 1, hybrid.FallbackShare, 0, 100, 200},
		{"share of four", ten, 4, hybrid.FallbackShare, 0, 25, 50},
		{"share of eighty: a fraction above one", ten, 80, hybrid.FallbackShare, 0, 1, 2},
		{"share of four, with a floor above it", ten, 4, hybrid.FallbackShare, 40, 40, 50},
		{"share of a hundred: below one unit, so the floor", few, 100, hybrid.FallbackShare, 0, 1, 0},
		{"share of a hundred, with a floor of two", few, 100, hybrid.FallbackShare, 2, 2, 0},
		{"full", ten, 4, hybrid.FallbackFull, 0, 100, 200},
		{"allow all", few, 4, hybrid.FallbackAllowAll, 0, 1000, 2000},
		{"deny all", ten, 4, hybrid.FallbackDenyAll, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				b.Kill()
				l := newLimiter(t, b.Client(nil), c.limit, hybrid.Config{
					Fallback: c.fallback, FallbackFloor: c.floor, MaxWait: -1, Hub: hybrid.HubConfig{FleetSize: c.fleet},
				})
				var first int64
				for range 1000 {
					first += ask(t, l, "k", 1).Granted
				}
				// A unit may be half refilled at the start or at the end, so
				// one more or less is right.
				if later := admits(t, l, "k", 20*time.Second); first != c.first || later < c.later-1 || later > c.later+1 {
					t.Errorf("admitted %d at once and %d in 20 s, want %d and %d", first, later, c.first, c.later)
				}
				if res := ask(t, l, "other", 1); res.Source != hybridlimit.SourceFallback || res.Allowed != (c.fallback != hybrid.FallbackDenyAll) {
					t.Errorf("another key: %+v", res)
				}
			})
		})
	}
}

// TestFallbackFloorComesBack checks that the floor comes back at the rate of
// the share. Cause: it came back once per time-to-full, in each process.
func TestFallbackFloorComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// After many failures go-redis dials once a second in the background.
		// It takes a second to notice that the client is closed.
		t.Cleanup(func() { time.Sleep(2 * time.Second) })
		b := redistest.NewBubble(t)
		b.Kill()
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(4, time.Minute, 4), hybrid.Config{
			MaxWait: -1, Hub: hybrid.HubConfig{FleetSize: 100},
		})
		if got := admits(t, l, "k", 50*time.Minute+time.Second); got != 3 { // 4/100 a minute
			t.Errorf("%d units were admitted in 50 minutes and at the start, want 3", got)
		}
	})
}

// TestFallbackIsNoAmnesty checks that a fallback starts from the level that
// Redis reported, and that the units it admits are paid when Redis is back. So
// an outage forgives nothing at its start or its end.
func TestFallbackIsNoAmnesty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link, rdb := b.Link(), b.Client(nil)
		l := newLimiter(t, link.Client(nil), still(100), hybrid.Config{Mode: hybrid.ModeDeferred})
		time.Sleep(2 * time.Second)
		for range 40 {
			ask(t, l, "k", 1)
		}
		for range 100 {
			ask(t, l, "empty", 1)
		}
		time.Sleep(time.Second)
		link.Refuse(true)
		link.CutAll()
		time.Sleep(10 * time.Second)
		var got int64
		for range 200 {
			got += ask(t, l, "k", 1).Granted
			if res := ask(t, l, "empty", 1); res.Allowed {
				t.Fatalf("a key that Redis knows to be empty: %+v", res)
			}
		}
		if got != 60 {
			t.Errorf("admitted %d units without Redis, want the 60 that were left", got)
		}
		link.Refuse(false)
		time.Sleep(5 * time.Second)
		if res := ask(t, l, "k", 1); res.Allowed {
			t.Errorf("after the fallback used everything up: %+v", res)
		}
		shutdown(t, l)
		if n := debited(t, rdb, "api", "k"); n != 100 || balance(t, l.Stats()) != 200 {
			t.Errorf("Redis debited %d of 100: %+v", n, l.Stats())
		}
	})
}

// TestFallbackForgivesWhatRefilled checks that units which had refilled before
// Redis came back are forgiven. Redis would have refilled them too.
func TestFallbackForgivesWhatRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link, rdb := b.Link(), b.Client(nil)
		l := newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(10, time.Second, 100), hybrid.Config{})
		time.Sleep(2 * time.Second)
		link.Refuse(true)
		link.CutAll()
		var got int64
		for range 50 {
			got += ask(t, l, "k", 1).Granted
		}
		time.Sleep(3 * time.Second) // 30 units refill
		link.Refuse(false)
		before := time.Now()
		for l.Stats().Owed > 0 && time.Since(before) < 10*time.Second {
			time.Sleep(time.Millisecond)
		}
		more := int64(time.Since(before)/(100*time.Millisecond)) + 1
		shutdown(t, l)
		s := l.Stats()
		if got != 50 || s.Forgiven < 30 || s.Forgiven > 30+more || debited(t, rdb, "api", "k") != balance(t, s) {
			t.Errorf("admitted %d units, want 50; forgiven %d, want 30 to %d; Redis debited %d: %+v", got, s.Forgiven, 30+more, debited(t, rdb, "api", "k"), s)
		}
	})
}

// TestLeasesOutliveRedis checks that leased units are spent under any fallback,
// because Redis has debited them already.
func TestLeasesOutliveRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(1000, time.Second, 2000), hybrid.Config{
			Mode: hybrid.ModeStrict, Fallback: hybrid.FallbackDenyAll,
		})
		ask(t, l, "k", 1)
		for range 300 {
			ask(t, l, "k", 1)
			time.Sleep(time.Millisecond)
		}
		b.Kill()
		held := l.Stats().Held
		if held == 0 {
			t.Fatal("the key has no lease")
		}
		var got int64
		var last hybridlimit.Result
		for range held + 10 {
			last = ask(t, l, "k", 1)
			got += last.Granted
		}
		if got != held || last.Allowed {
			t.Errorf("%d of %d leased units were admitted; the last call: %+v", got, held, last)
		}
		time.Sleep(10 * time.Second)
		if res := ask(t, l, "k", 1); res.Allowed || res.Source != hybridlimit.SourceFallback {
			t.Errorf("with the breaker open: %+v", res)
		}
	})
}

// A shadow limit counts and denies nobody.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.NewBubble(t).Client(nil)
		l := newLimiter(t, rdb, still(5), hybrid.Config{Shadow: true})
		for i := range 20 {
			res := ask(t, l, "k", 1)
			if !res.Allowed || res.Granted != 1 || res.RetryAfter != 0 || res.Shadowed != (i >= 5) {
				t.Errorf("call %d: %+v", i, res)
			}
		}
		if res := ask(t, l, "k", 6); !res.Allowed || !res.Shadowed || res.Granted != 6 {
			t.Errorf("a cost above the burst: %+v", res)
		}
		shutdown(t, l)
		s := l.Stats()
		if got := debited(t, rdb, "api", "k"); s.Admitted != 5 || got != 5 || balance(t, s) != 5 {
			t.Errorf("Redis debited %d, want 5: %+v", got, s)
		}
	})
}

// TestFallbackOfAWindow checks that units which the fallback admitted are owed
// until their window ends, and are forgiven then. Cause: they were forgiven as
// a bucket refills. So a Redis that came back within the window admitted them
// again.
func TestFallbackOfAWindow(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(100, time.Minute), hybridlimit.SlidingWindow(100, time.Minute)} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprint(limit.Algorithm, " later ", later), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					link, rdb := b.Link(), b.Client(nil)
					l := newLimiter(t, link.Client(nil), limit, hybrid.Config{})
					time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 2*time.Second)))
					ask(t, l, "k", 10)
					time.Sleep(time.Second) // the sync reaches Redis
					link.Refuse(true)
					link.CutAll()
					var got int64
					for range 80 {
						got += ask(t, l, "k", 1).Granted
					}
					away := 40 * time.Second // within the window, and the bucket of the fallback is full again
					if later {
						away = time.Minute
					}
					time.Sleep(away)
					link.Refuse(false)
					time.Sleep(3 * time.Second)
					s := l.Stats()
					if later {
						if s.Owed != 0 || s.Forgiven != s.Allowed[hybridlimit.SourceFallback] || s.Forgiven < 60 {
							t.Errorf("admitted %d units in the last window, want those of the fallback forgiven: %+v", got, s)
						}
						return
					}
					if got < 70 || s.Owed != 0 || s.Forgiven != 0 {
						t.Errorf("admitted %d units in this window, want at least 70, none owed and none forgiven: %+v", got, s)
					}
					if n := debited(t, rdb, "api", "k"); n != balance(t, s) || n < 10+got {
						t.Errorf("Redis debited %d, want what the limiter knows, and at least 10 + %d: %+v", n, got, s)
					}
					for range 100 {
						got += ask(t, l, "k", 1).Granted
					}
					if got > 90+5 { // C is 5
						t.Errorf("admitted %d units in one window after the first 10, want at most 95", got)
					}
					balance(t, l.Stats())
				})
			})
		}
	}
}

// TestFallbackDoesNotAllocate checks that decisions of the fallback do not
// allocate. Cause: the conditions of a decision were on the heap, and one call
// in thirty took 25 µs to find room for them.
func TestFallbackDoesNotAllocate(t *testing.T) {
	for name, fallback := range map[string]hybrid.Fallback{"admitted": hybrid.FallbackFull, "denied": hybrid.FallbackDenyAll} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				b.Kill()
				l := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(1_000_000), hybrid.Config{
					Fallback: fallback, MaxWait: -1, Hub: hybrid.HubConfig{FleetSize: 1},
				})
				admits(t, l, "k", time.Second) // the breaker opens
				if state := l.Stats().Breaker; state != breaker.Open {
					t.Fatalf("the breaker is %v", state)
				}
				var res hybridlimit.Result
				if n := testing.AllocsPerRun(1000, func() { res = ask(t, l, "k", 1) }); n != 0 {
					t.Errorf("a decision allocates %v times: %+v", n, res)
				}
				if res.Source != hybridlimit.SourceFallback || res.Allowed != (fallback == hybrid.FallbackFull) {
					t.Errorf("%+v", res)
				}
			})
		})
	}
}
