package local

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestOneCallAsks checks that of the calls that come at once, one asks LimitFor about a key that is held, however long the
// key was idle before.
func TestOneCallAsks(t *testing.T) {
	for _, own := range []hybridlimit.Limit{still(1000), hybridlimit.Unlimited(), hybridlimit.Blocked()} {
		for _, idle := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 3 * time.Second, 90 * time.Minute} {
			t.Run(fmt.Sprint(own, ", ", idle), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var asked atomic.Int64
					l := must(t, still(500), Config{LimitRefresh: 500 * time.Millisecond, LimitFor: func(string) hybridlimit.Limit {
						asked.Add(1)
						time.Sleep(50 * time.Millisecond)
						return own
					}})
					askNow(t, l, 1)
					time.Sleep(idle)
					held := l.Len() > 0
					asked.Store(0)
					var wg sync.WaitGroup
					for range 200 {
						wg.Go(func() { askNow(t, l, 1) })
					}
					wg.Wait()
					if n := asked.Load(); held && n > 1 || held && n == 0 && idle > 500*time.Millisecond {
						t.Errorf("%d of 200 calls asked", n)
					}
				})
			})
		}
	}
}
