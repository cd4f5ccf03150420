//go:build !race

// One goroutine calls, in virtual time. TestInspectBesideCalls has several.

package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestInspectForetells checks that the next call gets the answer that Inspect
// foretold, and that a second Inspect gives the same sentence.
func TestInspectForetells(t *testing.T) {
	t.Parallel()
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(100, time.Second, 100), hybridlimit.TokenBucket(20, time.Second, 200), hybridlimit.LeakyQueue(100, time.Second, 50),
		hybridlimit.FixedWindow(100, time.Second), hybridlimit.SlidingWindow(100, time.Second), hybridlimit.SlidingLog(50, time.Second),
		hybridlimit.WindowFromUse(100, time.Second),
	} {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
				time.Sleep(2100 * time.Millisecond)
				r := rand.New(rand.NewPCG(1, uint64(mode)))
				outcomes := map[hybrid.Outcome]int{}
				calls, pause := 600, 5_000 // pause: µs, at most
				if testenv.Full() {
					calls, pause = testenv.Runs(900, 1500), 8_000
				}
				for n := range calls {
					i := foretold(t, l, fmt.Sprint("k", r.IntN(2)), fmt.Sprintf("%v, %v, call %d", limit, mode, n))
					outcomes[i.Outcome]++
					if n == calls/2 {
						b.Kill()
					}
					if n == calls*2/3 {
						b.Restart()
					}
					time.Sleep(time.Duration(r.IntN(pause)) * time.Microsecond)
				}
				if len(outcomes) < 2 {
					t.Errorf("%v, %v: only %v", limit, mode, outcomes)
				}
			})
		}
	}
}

// TestInspectForetellsOtherLimits checks that Inspect uses the limit of the
// next call, and not that of the last call: after SetLimit, after AllowLimit,
// and with LimitFor. Cause: it used the limit of the last call, and foretold
// admissions by limits that were blocked by then.
func TestInspectForetellsOtherLimits(t *testing.T) {
	t.Parallel()
	of := map[hybridlimit.Algorithm]func(n int64) hybridlimit.Limit{
		hybridlimit.AlgTokenBucket:    func(n int64) hybridlimit.Limit { return hybridlimit.TokenBucket(n, time.Second, 2*n) },
		hybridlimit.AlgLeakyQueue:     func(n int64) hybridlimit.Limit { return hybridlimit.LeakyQueue(n, time.Second, n) },
		hybridlimit.AlgFixedWindow:    func(n int64) hybridlimit.Limit { return hybridlimit.FixedWindow(2*n, time.Second) },
		hybridlimit.AlgCalendarWindow: func(n int64) hybridlimit.Limit { return hybridlimit.WindowFromUse(2*n, time.Second) },
		hybridlimit.AlgSlidingWindow:  func(n int64) hybridlimit.Limit { return hybridlimit.SlidingWindow(2*n, time.Second) },
		hybridlimit.AlgSlidingLog:     func(n int64) hybridlimit.Limit { return hybridlimit.SlidingLog(n, time.Second) },
	}
	for algorithm, limit := range of {
		limits := []hybridlimit.Limit{limit(60), limit(60), limit(20), limit(200), hybridlimit.Blocked(), hybridlimit.Unlimited()}
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			for _, own := range []bool{false, true} {
				if !testenv.Full() && own != ((int(algorithm)+int(mode))%2 == 0) {
					continue // each algorithm and each mode has both
				}
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					r := rand.New(rand.NewPCG(2, uint64(mode)))
					any := func() hybridlimit.Limit { return limits[r.IntN(len(limits))] }
					cfg := hybrid.Config{Mode: mode}
					var mine atomic.Pointer[hybridlimit.Limit]
					if own {
						cfg.LimitFor = func(key string) hybridlimit.Limit {
							if key == "k0" {
								return *mine.Load()
							}
							return limits[0]
						}
						mine.Store(&limits[2])
					}
					l := newLimiter(t, b.Client(nil), limits[0], cfg)
					time.Sleep(2100 * time.Millisecond)
					changes := 0
					for n := range testenv.Runs(300, 800) {
						key := fmt.Sprint("k", r.IntN(2))
						foretold(t, l, key, fmt.Sprintf("%v, %v, LimitFor %v, call %d", algorithm, mode, own, n))
						switch r.IntN(25) {
						case 0:
							if err := l.SetLimit(any()); err != nil {
								t.Fatal(err)
							}
							changes++
						case 1:
							must(t)(l.AllowLimit(t.Context(), key, 1, any()))
							changes++
						case 2:
							other := any()
							mine.Store(&other)
						}
						switch n {
						case 400:
							b.Kill()
						case 550:
							b.Restart()
						}
						time.Sleep(time.Duration(r.IntN(8_000)) * time.Microsecond)
					}
					if changes < 20 {
						t.Errorf("%d changes of the limit", changes)
					}
				})
			}
		}
	}
}
