package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestNonsenseIsAnOutage checks that a Redis with unreadable replies counts as a Redis
// that does not answer: callers get no error, the fallback decides, and the breaker
// opens.
func TestNonsenseIsAnOutage(t *testing.T) {
	for i, text := range redistest.Nonsense {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			addr := redistest.Odd(t, func([]string) string { return text })
			l := newLimiter(t, redistest.Client(t, addr), still(10), hybrid.Config{
				Mode: []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeExact}[i%2],
				Hub:  hybrid.HubConfig{FleetSize: 2, SyncTimeout: 20 * time.Millisecond, Functions: i%3 == 0},
			})
			var got int64
			for range 20 {
				res := ask(t, l, "k", 1)
				got += res.Granted
				if res.Source != hybridlimit.SourceFallback {
					t.Errorf("%q: %+v", text, res)
				}
			}
			if got != 5 {
				t.Errorf("%q: %d units of a share of 5", text, got)
			}
			// An error about the client's own work (MOVED and similar) tells nothing
			// about the health of Redis, and a permanent refusal is no outage.
			healthy := strings.HasPrefix(text, "-MOVED") || strings.HasPrefix(text, "-ASK") || strings.HasPrefix(text, "-NOSCRIPT") ||
				strings.HasPrefix(text, "-Function") || strings.HasPrefix(text, "-HLBATCH")
			if !healthy {
				redistest.Eventually(t, 10*time.Second, "the breaker opens", func() bool {
					ask(t, l, "k", 1)
					return l.Stats().Breaker == breaker.Open
				})
			}
		})
	}
}

// breaking is a hook that panics where go-redis reads a reply.
type breaking struct{}

func (breaking) DialHook(next redis.DialHook) redis.DialHook { return next }
func (breaking) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("makeslice: len out of range") }
}

func (breaking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestAPanicIsAnOutage checks that a panic in a call to Redis counts as an outage: the
// fallback decides, the breaker opens, and the log has a line.
func TestAPanicIsAnOutage(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeDeferred, hybrid.ModeStrict, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			log := newCapture()
			rdb := redistest.Client(t, redistest.Odd(t, func([]string) string { return ":1\r\n" }))
			rdb.AddHook(breaking{})
			l := newLimiter(t, rdb, still(10), hybrid.Config{
				Mode: mode, Hub: hybrid.HubConfig{FleetSize: 2, SyncTimeout: time.Second, Logger: slog.New(log)},
			})
			redistest.Eventually(t, 10*time.Second, "the breaker opens", func() bool {
				ask(t, l, "k", 1)
				return l.Stats().Breaker == breaker.Open
			})
			if res := ask(t, l, "other", 1); !res.Allowed || res.Source != hybridlimit.SourceFallback {
				t.Errorf("%+v", res)
			}
			if lines := strings.Join(log.all(), "\n"); !strings.Contains(lines, "ERROR hybridlimit: a call to Redis panicked; it counts as unanswered panic=makeslice") {
				t.Errorf("logged %s", lines)
			}
		})
	}
}

// TestHybridWithNumbersThatMeanNothing answers with random numbers in replies of the right
// form. The limiter may believe them, but it must not panic, return an impossible Result,
// or hang.
func TestHybridWithNumbersThatMeanNothing(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(1000, time.Second, 100), hybridlimit.LeakyQueue(1000, time.Second, 50), hybridlimit.FixedWindow(500, time.Second),
		hybridlimit.SlidingWindow(500, time.Second), hybridlimit.SlidingLog(50, time.Second),
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
