package spend_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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

// burst is more than all calls of a schedule take.
const burst = 100_000

// seeds is the number of schedules of each of six limiters: with six algorithms within one window, with three over
// borders, 1026 in all.
const seeds = 19

// limits have one window for the whole of a schedule, or refill nothing in it.
var limits = map[string]hybridlimit.Limit{
	"token bucket":   hybridlimit.TokenBucket(1, 24*time.Hour, burst/4),
	"leaky bucket":   hybridlimit.LeakyBucket(1, 24*time.Hour, burst/4),
	"leaky queue":    hybridlimit.LeakyQueue(1, 24*time.Hour, burst/4),
	"fixed window":   hybridlimit.FixedWindow(burst, 24*time.Hour),
	"sliding window": hybridlimit.SlidingWindow(burst, 24*time.Hour),
	"sliding log":    hybridlimit.SlidingLog(burst, 24*time.Hour),
}

// world is a limiter, with looks at the key of a test.
type world struct {
	limiter hybridlimit.Limiter
	used    func() int64               // units that the limit counts now
	leases  func() (held, ended int64) // leased units in hand, and those that have ended unspent; nil: no leases
	link    *redistest.MemLink         // to Redis, with a latency of 3 and 7 ms; nil: none
}

// unspent returns the leased units in hand, and those with the ones that have ended unspent since the start.
func (w world) unspent() (held, all int64) {
	if w.leases == nil {
		return 0, 0
	}
	held, ended := w.leases()
	return held, held + ended
}

// worlds makes a limiter of each package, and one of hybrid for each mode.
var worlds = map[string]func(*testing.T, hybridlimit.Limit) world{
	"local": func(t *testing.T, limit hybridlimit.Limit) world {
		l, err := local.New(limit, local.Config{Name: "api"})
		if err != nil {
			t.Fatal(err)
		}
		return world{l, func() int64 { return limit.BurstSize() - left(t, l) }, nil, nil}
	},
	"global": func(t *testing.T, limit hybridlimit.Limit) world {
		l := exact(t, redistest.NewBubble(t), limit)
		return world{l, func() int64 { return limit.BurstSize() - left(t, l) }, nil, nil}
	},
	"hybrid auto":     inHybrid(hybrid.ModeAuto),
	"hybrid strict":   inHybrid(hybrid.ModeStrict),
	"hybrid deferred": inHybrid(hybrid.ModeDeferred),
	"hybrid exact":    inHybrid(hybrid.ModeExact),
}

func exact(t *testing.T, b *redistest.Bubble, limit hybridlimit.Limit) *global.Limiter {
	l, err := global.New(b.Client(nil), limit, global.Config{Name: "api"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// inHybrid looks at Redis, which counts the units of leases too.
func inHybrid(mode hybrid.Mode) func(*testing.T, hybridlimit.Limit) world {
	return func(t *testing.T, limit hybridlimit.Limit) world {
		b := redistest.NewBubble(t)
		link := b.Link()
		link.Latency(3*time.Millisecond, 7*time.Millisecond)
		l, err := hybrid.New(link.Client(nil), limit, hybrid.Config{Name: "api", Mode: mode, MaxWait: time.Second, Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		look := exact(t, b, limit)
		time.Sleep(3 * time.Second)
		return world{l, func() int64 { return limit.BurstSize() - left(t, look) }, func() (held, ended int64) {
			s := l.Stats()
			if s.Lost+s.Dropped > 0 {
				t.Errorf("units are lost: %+v", s)
			}
			return s.Held, s.Expired
		}, link}
	}
}

// fleet returns limiters of as many processes.
func fleet(t *testing.T, b *redistest.Bubble, n int, limit hybridlimit.Limit, cfg hybrid.Config) (ls []*hybrid.Limiter) {
	for range n {
		cfg.Name, cfg.Hub.Logger = "api", slog.New(slog.DiscardHandler)
		l, err := hybrid.New(b.Client(nil), limit, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		ls = append(ls, l)
		time.Sleep(137 * time.Millisecond) // the heartbeats of a fleet are spread
	}
	time.Sleep(4 * time.Second)
	return ls
}

func left(t *testing.T, l interface {
	Peek(context.Context, string) (hybridlimit.Result, error)
},
) int64 {
	res, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// TestNothingIsLost draws calls that run at the same time, tell of less or more than their estimate, and end by Settle,
// by a panic, by the end of their context, or never. In the end the limit has counted the last totals, to the unit.
func TestNothingIsLost(t *testing.T) {
	for name, make := range worlds {
		for of, limit := range limits {
			t.Run(name+" "+of, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(seeds) {
					synctest.Test(t, func(t *testing.T) { schedule(t, make(t, limit), seed) })
				}
			})
		}
	}
}

// schedule runs 40 calls within seven seconds.
func schedule(t *testing.T, w world, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var want atomic.Int64
	var calls sync.WaitGroup
	for i := range 40 {
		estimate, end := 1+rng.Int64N(60), ending(rng.IntN(int(endings)))
		totals := []int64{rng.Int64N(100), rng.Int64N(100), rng.Int64N(100)}[:rng.IntN(4)]
		begins := time.Duration(rng.IntN(5000))*time.Millisecond + time.Duration(i)*time.Microsecond
		lasts := time.Duration(rng.IntN(2000)) * time.Millisecond
		calls.Go(func() {
			time.Sleep(begins)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				ctx, _ = hybridlimit.WithRequestID(ctx, fmt.Sprint("call ", i))
			}
			s, res, err := spend.Begin(ctx, hybridlimit.Ask{Limiter: w.limiter, Key: "k", N: estimate})
			if err != nil || !res.Allowed {
				t.Errorf("seed %d: Begin of %d: %+v, %v", seed, estimate, res, err)
				return
			}
			end.run(ctx, t, s, cancel, func() {
				for _, total := range totals {
					time.Sleep(lasts)
					if _, err := s.Use(ctx, 0, total); err != nil {
						t.Errorf("seed %d: Use: %v", seed, err)
					}
				}
			})
			told := estimate
			if len(totals) > 0 {
				told = slices.Max(totals)
			}
			if end == never { // what was taken stays
				told = max(told, estimate)
			}
			want.Add(told)
		})
	}
	calls.Wait()
	time.Sleep(5 * time.Second)
	_, leases := w.unspent()
	if got := w.used() - leases; got != want.Load() {
		t.Errorf("seed %d: %d units are used beside %d of leases, and %d were told of", seed, got, leases, want.Load())
	}
}
