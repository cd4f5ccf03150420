package hybrid_test

import (
	"context"
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
