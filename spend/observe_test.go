package spend_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/spend"
)

// minute is longer than an observation is of use.
const minute = time.Minute

func observe(t *testing.T, l hybridlimit.Limiter, remaining int64, resetAfter time.Duration) {
	t.Helper()
	if err := spend.Observe(t.Context(), l, "k", remaining, resetAfter); err != nil {
		t.Errorf("%d remaining: %v", remaining, err)
	}
}

// TestObserveLowersToWhatIsLeft lowers a key, with each limit that has a level and each package. A larger remaining
// raises nothing, and the same one twice is one. Then exactly the rest is admitted.
func TestObserveLowersToWhatIsLeft(t *testing.T) {
	for of, limit := range limits {
		if of == "sliding log" {
			continue
		}
		for name, make := range worlds {
			t.Run(of+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w, all := make(t, limit), limit.BurstSize()
					take(t, w.limiter, 100)
					for _, step := range []struct {
						remaining, used int64
						reset           time.Duration
					}{
						{all + 5, 100, minute},
						{all, 100, minute},
						{all - 50, 100, minute},
						{-1, 100, minute},
						{5, 100, -time.Second}, // not known
						{all - 300, 300, minute},
						{all - 300, 300, minute},
						{all - 200, 300, minute},
						{200, all - 200, 0},
						{60, all - 60, 1<<63 - 1},
					} {
						var once sync.WaitGroup
						for range 5 { // twice is once, also at the same time
							once.Go(func() { observe(t, w.limiter, step.remaining, step.reset) })
						}
						once.Wait()
						time.Sleep(time.Second)
						if got := w.used(); got != step.used {
							t.Errorf("%d remaining, %v: %d units are used, want %d", step.remaining, step.reset, got, step.used)
						}
					}
					if limit.Algorithm == hybridlimit.AlgLeakyQueue {
						return // what is left waits
					}
					take(t, w.limiter, 60)
					time.Sleep(time.Second)
					if res, err := w.limiter.AllowN(t.Context(), "k", 1); err != nil || res.Allowed {
						t.Errorf("after the rest: %+v, %v", res, err)
					}
				})
			})
		}
	}
}

// take takes n units of a key that has them.
func take(t *testing.T, l hybridlimit.Limiter, n int64) {
	t.Helper()
	if res, err := l.AllowN(t.Context(), "k", n); err != nil || !res.Allowed {
		t.Errorf("%d units: %+v, %v", n, res, err)
	}
}

// TestObserveInAFleet lets six busy processes observe the same key at the same time. Redis counts it once, and all hear
// of it. The leases of the others come off what is left, so that all together spend no more.
func TestObserveInAFleet(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, limit := redistest.NewBubble(t), hybridlimit.TokenBucket(1, time.Hour, 100_000)
				ls := fleet(t, b, 6, limit, hybrid.Config{Mode: mode})
				look := exact(t, b, limit)
				spent := func(d time.Duration) (units int64) {
					for start := time.Now(); time.Since(start) < d; time.Sleep(10 * time.Millisecond) {
						for _, l := range ls {
							res, err := l.Allow(t.Context(), "k")
							if err != nil {
								t.Fatal(err)
							}
							units += res.Granted
						}
					}
					return units
				}
				for _, l := range ls { // as the first response of a provider
					observe(t, l, limit.Burst-1, minute)
				}
				spent(3 * time.Second)
				for _, l := range ls {
					observe(t, l, 1000, minute)
				}
				sum := spent(3 * time.Second)
				time.Sleep(3 * time.Second)
				// The sync that tells it waits for up to T. Meanwhile, calls may take units of Redis, or on credit.
				most := int64(6 * 50 / 10)
				if got := sum + left(t, look); got > 1000+most || got < 1000-600 {
					t.Errorf("%d units are spent after the observation, and %d are left: want 1000, less those of leases then", sum, left(t, look))
				}
				if sum < 400 {
					t.Errorf("only %d units of 1000 in three seconds", sum)
				}
			})
		})
	}
}

// TestOldObservations lets Redis be away longer, and less long, than an observation is of use.
func TestOldObservations(t *testing.T) {
	for _, tc := range []struct {
		away, reset time.Duration
		told        bool
	}{
		{2 * time.Second, minute, true},
		{12 * time.Second, minute, false},
		{4 * time.Second, 2 * time.Second, false},
		{4 * time.Second, 9 * time.Second, true},
		{12 * time.Second, 0, false},
	} {
		for _, when := range []string{"before", "as Redis goes", "sent"} {
			synctest.Test(t, func(t *testing.T) {
				b, limit := redistest.NewBubble(t), hybridlimit.TokenBucket(1, time.Hour, 1000)
				link := b.Link()
				l, err := hybrid.New(link.Client(nil), limit, hybrid.Config{Name: "api", Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)}})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				time.Sleep(3 * time.Second)
				look := exact(t, b, limit)
				take(t, l, 10)
				time.Sleep(time.Second)
				switch when {
				case "before":
					b.Kill()
					time.Sleep(time.Second)
					observe(t, l, 300, tc.reset)
				case "as Redis goes":
					observe(t, l, 300, tc.reset)
					b.Kill()
				case "sent":
					link.Latency(200*time.Millisecond, 0)
					observe(t, l, 300, tc.reset)
					time.Sleep(150 * time.Millisecond)
					b.Kill()
				}
				time.Sleep(tc.away)
				link.Latency(0, 0)
				b.Restart()
				time.Sleep(5 * time.Second)
				if got := left(t, look); got > 990 || (got <= 300) != tc.told {
					t.Errorf("%s, away for %v, reset after %v: %d units are left", when, tc.away, tc.reset, got)
				}
			})
		}
	}
}

// TestObserveCostsNothingTwice counts the messages of observations that say nothing new.
func TestObserveCostsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := fleet(t, b, 1, hybridlimit.TokenBucket(1, time.Hour, 1000), hybrid.Config{})[0]
		take(t, l, 10)
		time.Sleep(time.Second)
		before := l.Stats()
		for range 100 {
			observe(t, l, 995, minute)
			time.Sleep(10 * time.Millisecond)
		}
		if s := l.Stats(); s.Ops != before.Ops || s.Observed != 0 {
			t.Errorf("no news: %d messages, %d observed", s.Ops-before.Ops, s.Observed)
		}
		for i := range int64(100) { // a new one each 10 ms, for a second: one sync in T
			observe(t, l, 900-i, minute)
			time.Sleep(10 * time.Millisecond)
		}
		if s := l.Stats(); s.Ops-before.Ops > 22 || s.Observed != 100 {
			t.Errorf("news: %d messages, %d observed", s.Ops-before.Ops, s.Observed)
		}
	})
}

func TestBadObservations(t *testing.T) {
	l := inLocal(t, hybridlimit.PerHour(100), local.Config{})
	if err := spend.Observe(t.Context(), nil, "k", 1, minute); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
	if err := spend.Observe(t.Context(), plain{l}, "k", 1, minute); !errors.Is(err, hybridlimit.ErrUnsupported) {
		t.Errorf("a limiter of a user: %v", err)
	}
	if err := spend.Observe(t.Context(), l, "", 1, minute); !errors.Is(err, hybridlimit.ErrEmptyKey) {
		t.Errorf("an empty key: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		for name, make := range worlds {
			w := make(t, hybridlimit.SlidingLog(100, time.Minute))
			if err := spend.Observe(t.Context(), w.limiter, "k", 1, minute); !errors.Is(err, hybridlimit.ErrUnsupported) {
				t.Errorf("%s: a log: %v", name, err)
			}
		}
		g, err := global.New(redistest.NewBubble(t).Client(nil), hybridlimit.Unlimited(), global.Config{Name: "api"})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		observe(t, g, 1, minute)
	})
	c, err := local.NewConcurrency(hybridlimit.Concurrent(10), local.ConcurrencyConfig{Name: "slots"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := spend.Observe(t.Context(), c, "k", 1, minute); !errors.Is(err, hybridlimit.ErrUnsupported) {
		t.Errorf("calls in flight: %v", err)
	}
	l.Close()
	if err := spend.Observe(t.Context(), l, "k", 1, minute); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("a closed limiter: %v", err)
	}
}

// TestObserveWindow tells what a window has left, of which the end is near or far. A bucket holds back the units that
// it refills until then, down to a burst of debt. Other limits hold back what Observe does.
func TestObserveWindow(t *testing.T) {
	for _, tc := range []struct {
		limit     hybridlimit.Limit
		remaining int64
		reset     time.Duration
		left      int64 // 0: none
		again     time.Duration
	}{
		{hybridlimit.TokenBucket(10, time.Second, 100), 80, 0, 80, 0},
		{hybridlimit.TokenBucket(10, time.Second, 100), 80, 5 * time.Second, 30, 0},
		{hybridlimit.LeakyBucket(10, time.Second, 100), 80, 5 * time.Second, 30, 0},
		{hybridlimit.TokenBucket(10, time.Second, 100), 10, 5 * time.Second, 0, 4 * time.Second},
		{hybridlimit.TokenBucket(10, time.Second, 100), 10, time.Hour, 0, 10 * time.Second},
		{hybridlimit.TokenBucket(10, time.Second, 100), 800, 1<<63 - 1, 0, 10 * time.Second},
		{hybridlimit.FixedWindow(100, time.Hour), 80, 5 * time.Second, 80, 0},
		{hybridlimit.SlidingWindow(100, time.Hour), 80, time.Hour, 80, 0},
		{hybridlimit.LeakyQueue(1, time.Hour, 100), 80, time.Hour, 80, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := worlds["hybrid strict"](t, tc.limit)
			if err := spend.ObserveWindow(t.Context(), w.limiter, "k", tc.remaining, tc.reset); err != nil {
				t.Error(err)
			}
			if w.link.Latency(0, 0); tc.left > 0 {
				time.Sleep(70 * time.Millisecond) // the next sync, and less than a unit
				if got := tc.limit.BurstSize() - w.used(); got != tc.left {
					t.Errorf("%v, %d until %v: %d are left, want %d", tc.limit, tc.remaining, tc.reset, got, tc.left)
				}
				return
			}
			time.Sleep(tc.again - 100*time.Millisecond)
			if got := tc.limit.BurstSize() - w.used(); got != 0 {
				t.Errorf("%v, %d until %v: %d are left before %v", tc.limit, tc.remaining, tc.reset, got, tc.again)
			}
			time.Sleep(400 * time.Millisecond)
			if got := tc.limit.BurstSize() - w.used(); got < 1 {
				t.Errorf("%v, %d until %v: none is left after %v", tc.limit, tc.remaining, tc.reset, tc.again)
			}
		})
	}
}
