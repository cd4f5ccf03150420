package hybrid_test

import (
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Two calls that wait for one answer under two limits are each told by their
// own. The larger had been asked for under the smaller limit, and was denied
// for 285 years.
func TestAllowLimitWaitsUnderItsOwn(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		link := b.Link()
		l := newLimiter(t, link.Client(nil), still(5), patient(hybrid.Config{Mode: mode}))
		time.Sleep(2300 * time.Millisecond)
		link.Latency(20*time.Millisecond, 20*time.Millisecond)
		gold, plain := still(40), still(10)
		var wg sync.WaitGroup
		call := func(after time.Duration, n int64, limit hybridlimit.Limit, want bool) {
			wg.Go(func() {
				time.Sleep(after)
				res := must(t)(l.AllowLimit(t.Context(), "k", n, limit))
				if res.Allowed != want || res.RetryAfter > 100*time.Hour || res.Limit != limit.BurstSize() {
					t.Errorf("%d of %v: %+v", n, limit, res)
				}
			})
		}
		call(0, 1, gold, true)
		call(time.Millisecond, 30, gold, true) // both wait for the first
		call(2*time.Millisecond, 1, plain, true)
		call(200*time.Millisecond, 1, plain, true)
		call(201*time.Millisecond, 39, gold, false)
		call(202*time.Millisecond, 1, plain, true)
		wg.Wait()
		time.Sleep(time.Second)
		shutdown(t, l)
		balance(t, l.Stats())
	})
}
