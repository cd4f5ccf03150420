package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestHybridWithNumbersThatMeanNothing answers with random numbers in replies of the right
// form. The limiter may believe them, but it must not panic, return an impossible Result,
// or hang.
func TestHybridWithNumbersThatMeanNothing(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(1000, time.Second, 100), hybridlimit.LeakyQueue(1000, time.Second, 50), hybridlimit.FixedWindow(500, time.Second),
		hybridlimit.SlidingWindow(500, time.Second), hybridlimit.SlidingLog(50, time.Second),
		hybridlimit.WindowFromUse(500, time.Second), hybridlimit.CalendarWindow(500_000, hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin"}),
	} {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeDeferred, hybrid.ModeStrict} {
			t.Run(fmt.Sprint(limit.Algorithm, mode), func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				rng := testenv.Rand(t)
				var answers atomic.Int64
				addr := redistest.Odd(t, func(cmd []string) string {
					mu.Lock()
					defer mu.Unlock()
					answers.Add(1)
					return redistest.Numbers(rng, opsIn(cmd))
				})
				cfg := patient(hybrid.Config{Mode: mode, MaxKeys: 20})
				cfg.MaxWait, cfg.Hub.SyncTimeout = 5*time.Millisecond, 50*time.Millisecond
				l := newLimiter(t, redistest.Client(t, addr), limit, cfg)
				var wg sync.WaitGroup
				// On a busy machine few answers come in time, so the calls go on until there are enough.
				const enough = 20
				end := time.Now().Add(time.Duration(testenv.Runs(400, 20_000)) * time.Millisecond)
				late := end.Add(time.Minute)
				for g := range 4 {
					wg.Go(func() {
						rng := rand.New(rand.NewPCG(3, uint64(g)))
						for now := time.Now(); now.Before(end) || answers.Load() < enough && now.Before(late); now = time.Now() {
							key, n := fmt.Sprint("k", rng.IntN(40)), 1+rng.Int64N(3)
							var res hybridlimit.Result
							var err error
							switch rng.IntN(12) {
							case 0:
								_, err = l.Charge(context.Background(), key, n)
							case 1:
								_, err = l.Refund(context.Background(), key, n)
							case 2:
								_, err = l.Peek(context.Background(), key)
							case 3:
								_, err = l.Reserve(context.Background(), key, n)
							default:
								if res, err = l.AllowN(context.Background(), key, n); err != nil {
									t.Errorf("AllowN: %v", err)
								}
								if res.RetryAfter < 0 || res.ResetAfter < 0 || res.Delay < 0 || res.Remaining < 0 || res.Allowed && res.Granted != n || !res.Allowed && res.Granted != 0 {
									t.Errorf("%+v", res)
								}
							}
							if err != nil && !errors.Is(err, hybridlimit.ErrUnavailable) {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				l.Close()
				if answers.Load() < enough {
					t.Errorf("%d answers are too few to prove anything", answers.Load())
				}
			})
		}
	}
}

// opsIn returns the number of ops in a call of a script; 0 for a heartbeat.
func opsIn(cmd []string) int {
	if cmd[1] == lua.Fleet.SHA || cmd[1] == lua.Settings.SHA {
		return 0
	}
	keys, _ := strconv.Atoi(cmd[2])
	if header := strings.Fields(cmd[3+keys]); len(header) > 1 && header[1] != "0" {
		return keys - 2
	}
	return keys
}
