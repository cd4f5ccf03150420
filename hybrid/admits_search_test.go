//go:build search

package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestWholeBurstOnARealRedis is TestWholeBurst on a redis-server. Calls wait
// for a busy machine.
func TestWholeBurstOnARealRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	for _, tc := range bursts {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
			t.Run(fmt.Sprintf("%v burst %d processes %d", mode, tc.burst, tc.processes), func(t *testing.T) {
				t.Parallel()
				ls := make([]*hybrid.Limiter, tc.processes)
				for i := range ls {
					ls[i] = newLimiter(t, srv.Client(t), hybridlimit.TokenBucket(1, time.Hour, tc.burst), patient(hybrid.Config{
						Mode: mode, Hub: hybrid.HubConfig{Prefix: fmt.Sprintf("%v-%d-%d", mode, tc.burst, tc.processes)},
					}))
				}
				ready(t, ls...)
				got := admitsInTurn(t, ls, 2*tc.burst, 0)
				if float64(got) < tc.least*float64(tc.burst) {
					t.Errorf("admitted %d of %d units, want at least %g", got, tc.burst, tc.least)
				}
				for _, l := range ls {
					if s := l.Stats(); s.Allowed[hybridlimit.SourceFallback] > 0 {
						t.Errorf("the fallback admitted: %+v", s)
					}
				}
			})
		}
	}
}

// atOnce is the longest time for which calls are a burst: for half of the ticks from which on they count as steady demand.
const atOnce = 50 * time.Millisecond

// TestBurstAtOnceOnARealRedis is TestBurstAtOnce on a redis-server, in which a burst takes some milliseconds.
func TestBurstAtOnceOnARealRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	for _, burst := range []int64{100, 1000} {
		for _, processes := range []int{4, 10} {
			for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
				t.Run(fmt.Sprintf("%v burst %d processes %d", mode, burst, processes), func(t *testing.T) {
					ls := make([]*hybrid.Limiter, processes)
					for i := range ls {
						ls[i] = newLimiter(t, srv.Client(t), hybridlimit.TokenBucket(1, time.Hour, burst), patient(hybrid.Config{
							Mode: mode, Hub: hybrid.HubConfig{Prefix: fmt.Sprintf("once-%v-%d-%d", mode, burst, processes)},
						}))
					}
					ready(t, ls...)
					began := time.Now()
					got := admitsAtOnce(t, ls, burst)
					took := time.Since(began)
					t.Logf("admitted %d of %d in %v", got, burst, took)
					if took > atOnce {
						t.Skipf("the machine took %v for the calls: they are no burst", took)
					}
					if float64(got) < 0.95*float64(burst) {
						t.Errorf("admitted %d of %d units, want at least 95 %%", got, burst)
					}
				})
			}
		}
	}
}
