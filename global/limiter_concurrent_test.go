package global_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestConcurrentUse runs callers, cancellations and Close concurrently. It checks that
// every call returns, and that no more than the burst is admitted.
func TestConcurrentUse(t *testing.T) {
	const burst = 200
	mini := redistest.Mini(t)
	l := newLimiter(t, redistest.Client(t, mini.Addr()), hybridlimit.TokenBucket(1, time.Hour, burst), global.Config{Timeout: 10 * time.Second})
	var (
		callers            sync.WaitGroup
		mu                 sync.Mutex
		admitted, answered int
	)
	const goroutines, calls = 8, 60
	for g := range goroutines {
		callers.Go(func() {
			for i := range calls {
				ctx, cancel := context.WithCancel(t.Context())
				if i%10 == 9 {
					go cancel()
				}
				res, err := l.Allow(ctx, "k")
				cancel()
				mu.Lock()
				answered++
				switch {
				case res.Allowed && err == nil:
					admitted++
				case res.Allowed, err != nil && !errors.Is(err, context.Canceled):
					t.Errorf("goroutine %d: %+v, %v", g, res, err)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	if answered != goroutines*calls || admitted > burst || admitted < burst-goroutines*calls/10 {
		t.Errorf("%d answered, %d admitted of %d", answered, admitted, burst)
	}
	for range 4 {
		callers.Go(func() { _ = l.Close() })
		callers.Go(func() {
			if _, err := l.Allow(t.Context(), "k"); err != nil && !errors.Is(err, hybridlimit.ErrClosed) {
				t.Errorf("while closing: %v", err)
			}
		})
	}
	callers.Wait()
	// A goroutine has left the runner a moment before it ends.
	redistest.Eventually(t, 10*time.Second, "all calls end", func() bool { return callsRunning() == 0 })
}

// TestFunctionFlushUnderUse flushes the library while callers use it. It checks that all
// calls succeed, that no unit is lost or counted twice, and that the library is sent at
// most once for each loss.
func TestFunctionFlushUnderUse(t *testing.T) {
	server := functionServer(t)
	direct := server.Client(t)
	limit := hybridlimit.TokenBucket(1, time.Hour, 1_000_000)
	l := newLimiter(t, server.Client(t), limit, functionConfig)
	const losses = 5 // the callers go on until Redis has lost the library so often
	var flushes, calls atomic.Int64
	stop := make(chan struct{})
	flushed := make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				flushed <- n
				return
			case <-time.After(time.Duration(n%4) * time.Millisecond):
			}
			if err := direct.FunctionFlush(context.Background()).Err(); err != nil {
				t.Errorf("FUNCTION FLUSH: %v", err)
			}
			flushes.Add(1)
		}
	}()
	const callers, each = 8, 200
	errs := make(chan error)
	for range callers {
		go func() {
			for i := 0; i < each || flushes.Load() < losses; i++ {
				calls.Add(1)
				if res, err := l.Allow(context.Background(), "k"); err != nil || !res.Allowed {
					errs <- fmt.Errorf("%+v, %v", res, err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	close(stop)
	n := <-flushed
	if loads := redistest.Calls(t, direct)["function|load"]; loads > n+1 { // the first is of the start
		t.Errorf("%d loads for %d losses", loads, n)
	}
	if got := remaining(t, l, "k"); got != 1_000_000-calls.Load() {
		t.Errorf("%d units remain, want %d", got, 1_000_000-calls.Load())
	}
}

// TestAllowAllConcurrently has many callers with limits in every order. It checks that
// Redis debited exactly the granted units, and that no limit was exceeded.
func TestAllowAllConcurrently(t *testing.T) {
	srv := redistest.New(t)
	for _, tags := range []int{1, 16} {
		t.Run(fmt.Sprint(tags, " tags"), func(t *testing.T) {
			allowAllConcurrently(t, srv.Client(t), global.Config{Prefix: fmt.Sprint("c", tags), Tags: tags, Timeout: 30 * time.Second})
		})
	}
}

func allowAllConcurrently(t *testing.T, rdb redis.UniversalClient, cfg global.Config) {
	type limit struct {
		*global.Limiter
		key   string
		burst int64
	}
	var limits []limit
	for i, burst := range []int64{40, 60, 60, 90} {
		cfg := cfg
		cfg.Name = fmt.Sprint("l", i)
		limits = append(limits, limit{newLimiter(t, rdb, still(burst), cfg), fmt.Sprint("k", i), burst})
	}
	log := cfg
	log.Name = "log"
	limits = append(limits, limit{newLimiter(t, rdb, hybridlimit.SlidingLog(70, time.Hour), log), "k", 70})
	window := cfg
	window.Name = "window"
	limits = append(limits, limit{newLimiter(t, rdb, hybridlimit.FixedWindow(80, testenv.OpenWindow(time.Now(), 1, time.Hour)), window), "w", 80})
	var wg sync.WaitGroup
	var mu sync.Mutex
	want, denied := make([]int64, len(limits)), 0
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range 60 {
				var asks []hybridlimit.Ask
				var of []int
				for _, i := range rng.Perm(len(limits))[:1+rng.IntN(len(limits))] {
					asks = append(asks, hybridlimit.Ask{Limiter: limits[i].Limiter, Key: limits[i].key, N: 1 + rng.Int64N(2)})
					of = append(of, i)
				}
				res, err := hybridlimit.AllowAll(context.Background(), asks...)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if !res.Allowed {
					denied++
				}
				for i, a := range asks {
					if res.Allowed {
						want[of[i]] += a.N
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i, l := range limits {
		if got := l.burst - left(t, l.Limiter, l.key); got != want[i] || want[i] > l.burst {
			t.Errorf("limit %d: callers were granted %d units of %d, Redis debited %d", i, want[i], l.burst, got)
		}
	}
	if denied == 0 {
		t.Error("no call was denied")
	}
	// Units that were given back are in no history.
	var logged int64
	trail, err := limits[4].History(t.Context(), "k")
	for _, a := range trail {
		logged += a.Units
	}
	if err != nil || logged != want[4] {
		t.Errorf("the log shows %d units, want %d; %v", logged, want[4], err)
	}
}
