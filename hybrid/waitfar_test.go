package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestWaitForAFarRedis checks that Wait keeps the rate of a fleet whatever the distance of a healthy Redis, that no breaker opens,
// and that waiting calls are served alike. Cause: Wait gave up on Redis after MaxWait, so that 30 ms of distance were an outage:
// four processes with 10/s and a burst of 1 admitted 30 a second.
func TestWaitForAFarRedis(t *testing.T) {
	t.Parallel()
	// In 20 s, each caller is served nine times, and chance alone has an index of 0.97 once in hundreds of runs.
	const procs, callers, seconds = 4, 5, 60
	for _, burst := range []int64{1, 10} {
		for _, trip := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 90 * time.Millisecond} {
			t.Run(fmt.Sprint("burst ", burst, ", ", trip), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					var fleet []*hybrid.Limiter
					for range procs {
						link := b.Link()
						link.Latency(trip/2, trip/2)
						fleet = append(fleet, newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(10, time.Second, burst), hybrid.Config{
							Hub: hybrid.HubConfig{FleetSize: procs},
						}))
					}
					time.Sleep(3 * time.Second)
					ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
					defer cancel()
					var wg sync.WaitGroup
					var served [procs * callers]int64
					var first atomic.Int64 // at first one process may have the whole burst, and book as much again
					began := time.Now()
					for i := range served {
						wg.Go(func() {
							for {
								if _, err := fleet[i/callers].Wait(ctx, "k", 1); err != nil {
									return
								}
								if time.Since(began) < 2*time.Second {
									first.Add(1)
									continue
								}
								served[i]++
							}
						})
					}
					wg.Wait()
					var sum, squares float64
					for _, n := range served {
						sum, squares = sum+float64(n), squares+float64(n*n)
					}
					if rate := (sum + float64(first.Load()-burst)) / seconds; rate < 9.2 || rate > 10.8 {
						t.Errorf("%g calls a second, want 10", rate)
					}
					if jain := sum * sum / squares / float64(len(served)); jain < 0.98 {
						t.Errorf("Jain's index is %.3f: %v", jain, served)
					}
					for _, l := range fleet {
						if s := l.Stats(); s.Breaker != breaker.Closed || s.Allowed[hybridlimit.SourceFallback] > 0 {
							t.Errorf("the breaker is %v, and the fallback admitted %d", s.Breaker, s.Allowed[hybridlimit.SourceFallback])
						}
					}
				})
			})
		}
	}
}

// TestWaitInOrder checks that the calls of a process are served in their order, and that those which cannot meet their deadline
// fail within a round trip.
func TestWaitInOrder(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]hybridlimit.Limit{
		"burst 1": hybridlimit.TokenBucket(10, time.Second, 1), "burst 5": hybridlimit.TokenBucket(10, time.Second, 5),
		"window": hybridlimit.FixedWindow(2, time.Second), "sliding": hybridlimit.SlidingWindow(2, time.Second), "queue": hybridlimit.LeakyQueue(10, time.Second, 5),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, redistest.NewBubble(t).Client(nil), limit, hybrid.Config{})
				time.Sleep(3 * time.Second)
				var wg sync.WaitGroup
				var order []int
				var mu sync.Mutex
				for i := range 20 {
					wg.Go(func() {
						if _, err := l.Wait(t.Context(), "k", 1); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					})
					synctest.Wait()
				}
				wg.Wait()
				for i := range order { // several may be served at one instant
					if d := order[i] - i; d > 5 || d < -5 || limit.BurstSize() == 1 && d != 0 {
						t.Fatalf("served in the order %v", order)
					}
				}
				if limit.Algorithm == hybridlimit.AlgFixedWindow || limit.Algorithm == hybridlimit.AlgSlidingWindow {
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began, served := time.Now(), 0
				for range 20 {
					wg.Go(func() {
						_, err := l.Wait(ctx, "k", 1)
						mu.Lock()
						defer mu.Unlock()
						if served++; err != nil {
							served--
							if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 300*time.Millisecond {
								t.Errorf("%v after %v", err, took)
							}
						}
					})
				}
				wg.Wait()
				if served < 9 || served > 16 {
					t.Errorf("%d of 20 calls were served in a second", served)
				}
			})
		})
	}
}
