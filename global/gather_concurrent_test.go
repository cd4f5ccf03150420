package global_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestExactUnderLoad lets many callers of two processes exceed the limits of a few keys.
// It checks that exactly the burst of each is admitted, and that their calls shared
// messages.
func TestExactUnderLoad(t *testing.T) {
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for name, limit := range map[string]hybridlimit.Limit{
		"bucket": hybridlimit.TokenBucket(1, 24*time.Hour, 500), "fixed": hybridlimit.FixedWindow(500, 1000*24*time.Hour),
		"sliding": hybridlimit.SlidingWindow(500, 1000*24*time.Hour),
	} {
		for _, keys := range []int{1, 5} {
			t.Run(fmt.Sprint(name, " ", keys), func(t *testing.T) {
				cfg := global.Config{Name: fmt.Sprint(name, keys), Tags: 1, Timeout: time.Minute}
				both := []*global.Limiter{newLimiter(t, proxy.Client(t), limit, cfg), newLimiter(t, proxy.Client(t), limit, cfg)}
				before := proxy.Count("EVALSHA").Forwarded
				admitted, calls := make([]atomic.Int64, keys), 0
				var wg sync.WaitGroup
				for i := range 100 * keys {
					const each = 8
					calls += each
					wg.Go(func() {
						for range each {
							ctx := t.Context()
							if i%2 == 0 {
								ctx = context.Background()
							}
							res, err := both[i%2].Allow(ctx, fmt.Sprint("k", i%keys))
							if err != nil {
								t.Error(err)
							}
							if res.Allowed {
								admitted[i%keys].Add(1)
							}
						}
					})
				}
				wg.Wait()
				for i := range admitted {
					if n := admitted[i].Load(); n != 500 {
						t.Errorf("key %d: %d admitted", i, n)
					}
				}
				if n := proxy.Count("EVALSHA").Forwarded - before; n >= calls/2 {
					t.Errorf("%d messages for %d calls", n, calls)
				}
			})
		}
	}
}

// TestCallersThatLeaveUnderLoad cancels some of many callers at random times. It checks
// that the others get their answers, and that the debited units are those of admitted
// calls, and at most those of cancelled ones.
func TestCallersThatLeaveUnderLoad(t *testing.T) {
	server := redistest.New(t)
	l := newLimiter(t, server.Client(t), hybridlimit.TokenBucket(1, 24*time.Hour, 10_000), global.Config{Tags: 1, Timeout: time.Minute})
	rng := testenv.Rand(t)
	var admitted, left atomic.Int64
	var wg sync.WaitGroup
	for range 60 {
		waits := make([]time.Duration, 30)
		for i := range waits {
			waits[i] = time.Duration(rng.IntN(2_000_000))
		}
		wg.Go(func() {
			for i, wait := range waits {
				ctx, cancel := context.WithCancel(t.Context())
				if i%2 == 0 {
					time.AfterFunc(wait, cancel)
				}
				res, err := l.AllowN(ctx, "k", int64(1+i%3/2))
				switch {
				case err == nil && res.Allowed:
					admitted.Add(res.Granted)
				case errors.Is(err, context.Canceled) && i%2 == 0 && !res.Allowed:
					left.Add(int64(1 + i%3/2))
				default:
					t.Errorf("%+v, %v", res, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	res, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if debited := 10_000 - res.Remaining; debited < admitted.Load() || debited > admitted.Load()+left.Load() {
		t.Errorf("%d units debited, %d admitted, %d of calls that left", debited, admitted.Load(), left.Load())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// A goroutine has left the runner a moment before it ends.
	redistest.Eventually(t, 10*time.Second, "all goroutines end", func() bool { return callsRunning() == 0 })
}
