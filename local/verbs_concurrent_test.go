package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
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
			for time.Since(start) < 300*ms {
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
				for i := 0; time.Since(start) < 200*ms || admitted.Load() < 1000; i++ {
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

// TestAllowAllConcurrently asks many limiters with few shards in every order. It checks
// that there is no deadlock and no excess, and that exactly the granted units are used.
func TestAllowAllConcurrently(t *testing.T) {
	limits := []hybridlimit.Limit{still(150), still(200), hybridlimit.SlidingLog(180, time.Hour), hybridlimit.FixedWindow(220, 1000*time.Hour)}
	var ls []*Limiter
	for i, limit := range limits {
		ls = append(ls, must(t, limit, Config{Name: fmt.Sprint("l", i), MaxKeys: []int{100, 100_000}[i%2]}))
	}
	type place struct{ l, key int }
	var mu sync.Mutex
	want, denied := map[place]int64{}, 0
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range 300 {
				var asks []hybridlimit.Ask
				var at []place
				for _, i := range rng.Perm(3 * len(ls))[:1+rng.IntN(6)] {
					p := place{i / 3, i % 3}
					asks, at = append(asks, hybridlimit.Ask{Limiter: ls[p.l], Key: fmt.Sprint("k", p.key), N: 1 + rng.Int64N(2)}), append(at, p)
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
						want[at[i]] += a.N
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Go(func() { // other methods, which lock one shard at a time
		for range 100 {
			ls[0].Len()
			_ = ls[1].SetLimit(limits[1])
		}
	})
	wg.Wait()
	for p, units := range want {
		if got := limits[p.l].BurstSize() - left(t, ls[p.l], fmt.Sprint("k", p.key)); got != units || units > limits[p.l].BurstSize() {
			t.Errorf("%+v: callers were granted %d units, the limiter counted %d", p, units, got)
		}
	}
	if denied == 0 {
		t.Error("no call was denied")
	}
}

// TestRefreshAndInvalidateConcurrently lets answers change under calls of all kinds.
func TestRefreshAndInvalidateConcurrently(t *testing.T) {
	a := answering(still(1000))
	l := must(t, still(500), Config{LimitFor: a.limitFor, LimitRefresh: 10 * time.Millisecond, MaxKeys: 2})
	var wg sync.WaitGroup
	for g := range 8 {
		rng := rand.New(rand.NewPCG(1, uint64(g)))
		wg.Go(func() {
			for range 3000 {
				var err error
				key := [...]string{"k", "b", "c"}[rng.IntN(3)]
				switch rng.IntN(6) {
				case 0:
					a.set(still(1000 + rng.Int64N(100)))
					err = l.Invalidate(key)
				case 1:
					_, err = l.AllowLimit(t.Context(), key, 1, still(77))
				case 2:
					a.set(hybridlimit.Unlimited())
				case 3:
					_, err = hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: key, N: 1}, hybridlimit.Ask{Limiter: l, Key: "b", N: 1})
				default:
					_, err = l.AllowN(t.Context(), key, 1)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	a.set(still(2000))
	invalidate(t, l)
	if res := askNow(t, l, 1); res.Limit != 2000 {
		t.Errorf("%+v", res)
	}
}

// TestCloseEndsEveryWait checks that Close ends all waits, also those that hold booked
// units.
func TestCloseEndsEveryWait(t *testing.T) {
	bubble(t, 1, time.Hour, func(t *testing.T, l *Limiter) {
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if took, err := waited(t.Context(), l, 1); !errors.Is(err, hybridlimit.ErrClosed) || took != time.Second {
					t.Errorf("%v after %v", err, took)
				}
			})
		}
		time.Sleep(time.Second)
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}
