package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// TestLimitsAlternateInFlight alternates two limits on one key, from several
// goroutines, while syncs travel over a slow link. No unit may be admitted
// twice, or be lost from the books.
func TestLimitsAlternateInFlight(t *testing.T) {
	for _, set := range []bool{false, true} {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred} {
			t.Run(fmt.Sprint(mode, " SetLimit ", set), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					rdb := b.Client(nil)
					link := b.Link()
					l := newLimiter(t, link.Client(nil), still(100), patient(hybrid.Config{Mode: mode}))
					time.Sleep(2300 * time.Millisecond)
					link.Latency(15*time.Millisecond, 15*time.Millisecond)
					// The second limit has other sub-units, and fewer units.
					limits := []hybridlimit.Limit{still(100), hybridlimit.TokenBucket(7, 11*time.Hour, 90)}
					var got atomic.Int64
					var wg sync.WaitGroup
					for g := range 8 {
						wg.Go(func() {
							rng := rand.New(rand.NewPCG(1, uint64(g)))
							for range 60 {
								limit := limits[rng.IntN(2)]
								var res hybridlimit.Result
								if set {
									if err := l.SetLimit(limit); err != nil {
										t.Error(err)
									}
									res = ask(t, l, "k", 1+rng.Int64N(2))
								} else {
									res = must(t)(l.AllowLimit(context.Background(), "k", 1+rng.Int64N(2), limit))
								}
								got.Add(res.Granted)
								if res.RetryAfter > 1000*time.Hour {
									t.Errorf("%+v", res)
								}
								time.Sleep(time.Duration(rng.IntN(9)) * time.Millisecond)
							}
						})
					}
					wg.Wait()
					time.Sleep(time.Second)
					shutdown(t, l)
					s := l.Stats()
					if n := got.Load(); n > 100 || n+s.Expired+s.Lost < 85 || s.Admitted != n || debited(t, rdb, "api", "k") != balance(t, s) {
						t.Errorf("admitted %d units, want at most 100, and at least 85 with expired and lost ones; %+v", n, s)
					}
				})
			})
		}
	}
}

// TestAllowAllUnderAttack calls AllowAll for keys that evict each other, beside
// calls of one limit. Some calls give up. At the end the hub closes under them.
// The test checks for deadlocks, for units outside the books, and for callers
// that were told of units not counted.
func TestAllowAllUnderAttack(t *testing.T) {
	for name, end := range map[string]func(*hybrid.Hub) error{
		"Close":    func(h *hybrid.Hub) error { return h.Close() },
		"Shutdown": func(h *hybrid.Hub) error { return h.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				h := newHub(t, link.Client(nil), hybrid.HubConfig{})
				var ls []*hybrid.Limiter
				for i := range 3 {
					mode := []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred}[i]
					ls = append(ls, add(t, h, hybridlimit.TokenBucket(20, time.Second, 10), hybrid.Config{
						Name: fmt.Sprint("l", i), Mode: mode, MaxKeys: 3, LimitFor: func(key string) hybridlimit.Limit {
							if key == "k0" {
								return hybridlimit.TokenBucket(30, time.Second, 15)
							}
							return hybridlimit.TokenBucket(20, time.Second, 10)
						},
					}))
				}
				time.Sleep(2300 * time.Millisecond)
				link.Latency(3*time.Millisecond, 3*time.Millisecond)
				var told [3]atomic.Int64
				var wg sync.WaitGroup
				for g := range 10 {
					wg.Go(func() {
						rng := rand.New(rand.NewPCG(2, uint64(g)))
						for {
							ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(30))*time.Millisecond)
							var asks []hybridlimit.Ask
							for _, i := range rng.Perm(3)[:1+rng.IntN(3)] {
								asks = append(asks, hybridlimit.Ask{Limiter: ls[i], Key: fmt.Sprint("k", rng.IntN(6)), N: 1 + rng.Int64N(2)})
							}
							var err error
							var res hybridlimit.Result
							switch rng.IntN(4) {
							case 0:
								asks = asks[:1]
								res, err = asks[0].Limiter.AllowN(ctx, asks[0].Key, asks[0].N)
							default:
								res, err = hybridlimit.AllowAll(ctx, asks...)
							}
							cancel()
							switch {
							case errors.Is(err, hybridlimit.ErrClosed):
								return
							case err != nil && !errors.Is(err, context.DeadlineExceeded):
								t.Error(err)
							case err != nil && (res.Allowed || res.Granted > 0):
								t.Errorf("%+v, %v", res, err)
							}
							if res.Allowed {
								for _, a := range asks {
									for i, l := range ls {
										if l == a.Limiter {
											told[i].Add(a.N)
										}
									}
								}
							}
							time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
						}
					})
				}
				time.Sleep(time.Second)
				if err := end(h); err != nil {
					t.Error(err)
				}
				wg.Wait()
				for i, l := range ls {
					s := l.Stats()
					balance(t, s)
					if s.Admitted != told[i].Load() {
						t.Errorf("limit %d: callers were told of %d units, %d are counted; %+v", i, told[i].Load(), s.Admitted, s)
					}
				}
			})
		})
	}
}

// TestCallbacksRunUnderNoLock checks that LimitFor and Subject may call their
// own limiter, also for the same key.
func TestCallbacksRunUnderNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var l *hybrid.Limiter
		var inside, calls atomic.Int64
		reenter := func(key string) {
			if l == nil || !inside.CompareAndSwap(0, 1) {
				return
			}
			calls.Add(1)
			l.Stats()
			for _, k := range []string{key, "other"} {
				must(t)(l.AllowN(t.Context(), k, 1))
				must(t)(l.Charge(t.Context(), k, 1))
				must(t)(l.AllowLimit(t.Context(), k, 1, still(77)))
				must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: k, N: 1}))
			}
			inside.Store(0)
		}
		made := newLimiter(t, b.Client(nil), still(1000), hybrid.Config{
			LimitFor: func(key string) hybridlimit.Limit { reenter(key); return still(1000) },
			Subject:  func(key string) string { reenter(key); return key },
		})
		l = made
		time.Sleep(2300 * time.Millisecond)
		ctx := t.Context()
		for i := range 20 {
			key := fmt.Sprint("k", i%3)
			must(t)(l.AllowN(ctx, key, 1))
			must(t)(l.AllowLimit(ctx, key, 1, still(500)))
			must(t)(l.AllowAtMost(ctx, key, 2))
			must(t)(l.Peek(ctx, key))
			must(t)(l.Charge(ctx, key, 1))
			must(t)(hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: l, Key: key, N: 1}, hybridlimit.Ask{Limiter: l, Key: "other", N: 1}))
			if err := l.SetLimit(still(int64(900 + i))); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if calls.Load() < 20 {
			t.Errorf("the callbacks called the limiter %d times, want at least 20", calls.Load())
		}
	})
}

// TestAllowAllContextEnds checks a ctx that ends while AllowAll waits. AllowAll
// returns the error of ctx. It has taken only units that Redis granted
// meanwhile: these count as lost, or other calls use them.
func TestAllowAllContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb := b.Client(nil)
		link := b.Link()
		h := newHub(t, link.Client(nil), hybrid.HubConfig{})
		var ls []*hybrid.Limiter
		for _, name := range []string{"a", "b", "c"} {
			ls = append(ls, add(t, h, still(10), hybrid.Config{Name: name, Mode: hybrid.ModeStrict, MaxWait: time.Second}))
		}
		time.Sleep(2300 * time.Millisecond)
		link.Latency(20*time.Millisecond, 20*time.Millisecond)
		for wait := 10 * time.Millisecond; wait < 150*time.Millisecond; wait += 30 * time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			key := fmt.Sprint("k", wait)
			began := time.Now()
			res, err := hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: ls[0], Key: key, N: 2}, hybridlimit.Ask{Limiter: ls[1], Key: key, N: 2}, hybridlimit.Ask{Limiter: ls[2], Key: key, N: 2})
			cancel()
			if ended := wait < 120*time.Millisecond; ended != errors.Is(err, context.DeadlineExceeded) || ended == res.Allowed || time.Since(began) > wait {
				t.Errorf("%v: %+v, %v after %v", wait, res, err, time.Since(began))
			}
			time.Sleep(2 * time.Second)
		}
		shutdown(t, ls...)
		for i, l := range ls {
			s := l.Stats()
			var keys []string
			for wait := 10 * time.Millisecond; wait < 150*time.Millisecond; wait += 30 * time.Millisecond {
				keys = append(keys, fmt.Sprint("k", wait))
			}
			if got := debited(t, rdb, []string{"a", "b", "c"}[i], keys...); s.Admitted != 2 || got != balance(t, s) {
				t.Errorf("limit %d: %d debited; %+v", i, got, s)
			}
		}
	})
}
