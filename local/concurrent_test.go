package local

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestOutOfOrderCallersAddNoUnits is the bound under contention in real time,
// where callers pass times that are out of order. A bare rate.Limiter fails it
// by a multiple of its burst.
func TestOutOfOrderCallersAddNoUnits(t *testing.T) {
	limit := hybridlimit.TokenBucket(1_000_000, time.Second, 100)
	l := must(t, limit, Config{})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 16 {
		wg.Go(func() {
			for time.Since(start) < time.Second {
				res, err := l.Allow(context.Background(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				admitted.Add(res.Granted)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start) + 1
	if most := 100 + int64(elapsed/time.Microsecond); admitted.Load() > most {
		t.Errorf("%d admitted in %v, at most %d may be", admitted.Load(), elapsed, most)
	}
}

// TestEvictionLosesNothingTaken: with more keys than room and all of them in
// use, what is admitted is a burst for each key, and one for each history that
// was lost. A key that is evicted while another caller takes from it would break
// this.
func TestEvictionLosesNothingTaken(t *testing.T) {
	const keys, burst = 40, 10
	l := must(t, hybridlimit.TokenBucket(1, 24*time.Hour, burst), Config{MaxKeys: 8})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 4000 {
				key := fmt.Sprint("k", (i*(2*g+1)+i/7)%keys)
				switch res, err := l.AllowN(context.Background(), key, int64(1+i%3)); {
				case err != nil:
					t.Error(err)
				default:
					admitted.Add(res.Granted)
				}
				if l.Len() > 8 {
					t.Error("more than MaxKeys are held")
				}
			}
		})
	}
	wg.Wait()
	if most := burst * (keys + int64(l.Evicted())); admitted.Load() > most {
		t.Errorf("%d units admitted, %d losses allow %d", admitted.Load(), l.Evicted(), most)
	}
}

// TestAllVerbsTogether is for the race detector.
func TestAllVerbsTogether(t *testing.T) {
	ctx := context.Background()
	l := must(t, hybridlimit.PerSecond(100), Config{MaxKeys: 4096})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				key := fmt.Sprint("k", (i*g)%100)
				_, _ = l.Allow(ctx, key)
				_, _ = l.AllowN(ctx, key, 200)
				_, _ = l.Peek(ctx, key)
				_ = l.Reset(ctx, key)
				_, _ = l.Len(), l.Evicted()
				if g == 0 && i == 900 {
					_ = l.Close()
				}
			}
		})
	}
	wg.Wait()
}

// TestNoGoroutines: a bubble that leaves a goroutine behind is an error.
func TestNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(hybridlimit.PerSecond(1), Config{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			_, _ = l.Allow(context.Background(), fmt.Sprint(i))
		}
		time.Sleep(time.Hour)
		if n := l.Len(); n != 1000 { // and with no call, nobody frees anything
			t.Errorf("%d keys after an hour without a call", n)
		}
		// Not closed.
	})
}

func TestNoAllocations(t *testing.T) {
	ctx := context.Background()
	l := must(t, hybridlimit.TokenBucket(1, time.Hour, 100), Config{Name: "n"})
	if n := testing.AllocsPerRun(200, func() { // half of them are denied
		_, _ = l.Allow(ctx, "k")
		_, _ = l.Peek(ctx, "k")
	}); n != 0 {
		t.Errorf("%v allocations for a key that is there", n)
	}
}
