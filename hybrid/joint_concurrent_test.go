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
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestAllowAllConcurrently checks the books of many callers that name the
// limits in every order.
func TestAllowAllConcurrently(t *testing.T) {
	srv := redistest.New(t)
	h := newHub(t, srv.Client(t), hybrid.HubConfig{SyncTimeout: 10 * time.Second})
	var ls []*hybrid.Limiter
	for i := range 4 {
		ls = append(ls, add(t, h, still(200), hybrid.Config{Name: fmt.Sprint("l", i), MaxWait: 5 * time.Second}))
	}
	if err := h.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	want := map[*hybrid.Limiter]int64{}
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range 100 {
				var asks []hybridlimit.Ask
				for _, i := range rng.Perm(len(ls))[:1+rng.IntN(len(ls))] {
					asks = append(asks, hybridlimit.Ask{Limiter: ls[i], Key: "k", N: 1 + rng.Int64N(2)})
				}
				res, err := hybridlimit.AllowAll(context.Background(), asks...)
				if err != nil {
					t.Error(err)
				}
				if res.Allowed {
					mu.Lock()
					for _, a := range asks {
						want[a.Limiter.(*hybrid.Limiter)] += a.N
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	shutdown(t, ls...)
	for i, l := range ls {
		s := l.Stats()
		if got := debited(t, srv.Client(t), fmt.Sprint("l", i), "k"); s.Admitted != want[l] || s.Admitted > 200 || !explained(t, got, s) {
			t.Errorf("limit %d: callers were told of %d units; Redis debited %d; %+v", i, want[l], got, s)
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
