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

// TestOutOfOrderCallersAddNoUnits checks the bound under contention in real time. The
// times of the callers are out of order. A bare rate.Limiter exceeds the bound by a
// multiple of its burst.
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
		t.Errorf("%d admitted in %v, want at most %d", admitted.Load(), elapsed, most)
	}
}

// TestEvictionLosesNothingTaken uses more keys than there is room for. It checks that at
// most one burst is admitted for each key and one for each lost history. Evicting a key
// while another caller takes from it would break this.
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

// TestBoundsUnderContention checks the bound of each algorithm in real time. The callers
// are out of order, cancel and wait.
func TestBoundsUnderContention(t *testing.T) {
	eachAlgorithm(t, 1000, 50*ms, func(t *testing.T, limit hybridlimit.Limit) {
		l := must(t, limit, Config{})
		var admitted atomic.Int64
		var wg sync.WaitGroup
		start := time.Now()
		for g := range 8 {
			wg.Go(func() {
				for i := 0; time.Since(start) < 200*ms; i++ {
					n := int64(1 + i%3)
					switch g {
					case 0:
						ctx, cancel := context.WithTimeout(context.Background(), ms)
						if res, err := l.Wait(ctx, "k", n); err == nil {
							admitted.Add(res.Granted)
						}
						cancel()
					case 1:
						r, err := l.Reserve(context.Background(), "k", n)
						if err == nil {
							err = r.Cancel(context.Background())
						}
						if err != nil {
							t.Error(err)
						}
					default:
						res, err := l.AllowAtMost(context.Background(), "k", n)
						if err != nil {
							t.Error(err)
						}
						admitted.Add(res.Granted)
					}
				}
			})
		}
		wg.Wait()
		elapsed := time.Since(start) + 1
		most := 1000 + int64(elapsed/(50*time.Microsecond)) + 1
		if windowed(limit.Algorithm) { // the first window may have begun before the test
			most = 1000 * (2 + int64(elapsed/(50*ms)))
		}
		if got := admitted.Load(); got > most || got < 1000 {
			t.Errorf("%d admitted in %v, want 1000 to %d", got, elapsed, most)
		}
	})
}

// TestAllVerbsTogether is for the race detector.
func TestAllVerbsTogether(t *testing.T) {
	eachAlgorithm(t, 100, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		other := resized(limit, 150, time.Minute)
		l := must(t, limit, Config{MaxKeys: 4096, LimitFor: func(key string) hybridlimit.Limit {
			if key == "k7" {
				return other
			}
			return limit
		}})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 400 {
					key := fmt.Sprint("k", (i*g)%100)
					_, _ = l.Allow(ctx, key)
					_, _ = l.AllowN(ctx, key, 200)
					_, _ = l.AllowAtMost(ctx, key, 2)
					_, _ = l.AllowLimit(ctx, key, 1, other)
					_, _ = l.Peek(ctx, key)
					_, _ = l.Charge(ctx, key, 1)
					_, _ = l.Refund(ctx, key, 2)
					if r, err := l.Reserve(ctx, key, 3); err == nil {
						_ = r.Cancel(ctx)
					}
					if i%50 == 0 {
						soon, cancel := context.WithTimeout(ctx, ms)
						_, _ = l.Wait(soon, key, 1)
						cancel()
						_ = l.SetLimit(resized(limit, int64(50+i), time.Second))
					}
					_ = l.Reset(ctx, key)
					_, _ = l.Len(), l.Evicted()
					if g == 0 && i == 350 {
						_ = l.Close()
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestNoGoroutines checks that a limiter needs no Close: a bubble fails if a goroutine
// remains.
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
		if n := l.Len(); n != 1000 { // without a call nothing is freed
			t.Errorf("%d keys after an hour without a call", n)
		}
		// The limiter is not closed.
	})
}

func TestNoAllocations(t *testing.T) {
	ctx := context.Background()
	eachAlgorithm(t, 100, time.Hour, func(t *testing.T, limit hybridlimit.Limit) {
		l := must(t, limit, Config{Name: "n"})
		if n := testing.AllocsPerRun(200, func() { // half of them are denied
			_, _ = l.Allow(ctx, "k")
			_, _ = l.Peek(ctx, "k")
			_, _ = l.AllowAtMost(ctx, "k", 1)
			_, _ = l.Charge(ctx, "k", 1)
			_, _ = l.Refund(ctx, "k", 1)
		}); n != 0 { // a log grows on average by less than one
			t.Errorf("%v allocations for a key that is held, want 0", n)
		}
	})
}
