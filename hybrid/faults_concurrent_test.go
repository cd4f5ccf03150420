package hybrid_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestUnitsUnderFaults lets callers of two processes ask for more keys than fit into memory, while messages and replies are lost and
// delayed. Many messages go beside a batch. At the end the units that Redis has debited are those that the processes know of, and no
// caller has got more than there are.
func TestUnitsUnderFaults(t *testing.T) {
	const burst, keys, memory = 40, 60, 32
	rng := testenv.Rand(t)
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred} {
		seed := rng.Uint64()
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				var mu sync.Mutex // guards draw
				draw := rand.New(rand.NewPCG(seed, 1))
				intn := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return draw.IntN(n)
				}
				names := keysOf("k", keys)
				var faulty atomic.Bool
				var hubs []*hybrid.Hub
				var limiters []*hybrid.Limiter
				var units [keys]atomic.Int64
				for range 2 {
					link := b.Link()
					link.Latency(time.Millisecond, time.Millisecond)
					link.Script(func(int, []string) redistest.Verdict {
						switch n := intn(60); {
						case !faulty.Load() || n > 3:
							return redistest.Forward()
						case n == 0:
							return redistest.DropReply(redistest.ThenClose)
						case n == 1:
							return redistest.DropRequest(redistest.ThenHang)
						case n == 2:
							return redistest.DropReply(redistest.ThenHang)
						}
						return redistest.DelayReply(50 * time.Millisecond)
					})
					h := newHub(t, link.Client(nil), hybrid.HubConfig{
						SyncTimeout: 80 * time.Millisecond,
						Breaker:     breaker.Config{Failures: 1 << 20, FailureRatio: -1, SlowCall: -1}, // the fallback is not under test
					})
					hubs = append(hubs, h)
					limiters = append(limiters, add(t, h, still(burst), hybrid.Config{Name: "f", Mode: mode, MaxWait: 10 * time.Second, MaxKeys: memory}))
				}
				time.Sleep(2500 * time.Millisecond) // both know the fleet
				faulty.Store(true)
				var wg sync.WaitGroup
				for g := range 16 {
					l := limiters[g%2]
					wg.Go(func() {
						for range 120 {
							k := intn(keys)
							res, err := l.Allow(context.Background(), names[k])
							if err != nil {
								t.Error(err)
							}
							units[k].Add(res.Granted)
							if s := l.Stats(); s.Keys > memory {
								t.Errorf("%d keys in memory", s.Keys)
							}
							time.Sleep(time.Duration(intn(3000)) * time.Microsecond)
						}
					})
				}
				wg.Wait()
				faulty.Store(false)
				var stats []hybrid.Stats
				for i, h := range hubs {
					if err := h.Shutdown(t.Context()); err != nil {
						t.Error(err)
					}
					stats = append(stats, limiters[i].Stats())
				}
				got := debited(t, b.Client(nil), "f", names...)
				if !explained(t, got, stats...) {
					t.Errorf("Redis debited %d: %+v", got, stats)
				}
				for k := range units {
					if n := units[k].Load(); n > burst+2*2 { // C of two processes
						t.Errorf("%s: %d units of %d", names[k], n, burst)
					}
				}
				if hubs[0].Stats().Failures == 0 || stats[0].Evicted == 0 {
					t.Errorf("no faults, or no evictions: %+v", stats[0])
				}
			})
		})
	}
}
