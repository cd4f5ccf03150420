package hybrid_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestCollectBesideCalls collects the metrics and reads Stats while calls of several limiters run, and while the hub closes. The last
// figures have all calls.
func TestCollectBesideCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &metertest.Provider{}
		h := newHub(t, redistest.NewBubble(t).Client(nil), hybrid.HubConfig{MeterProvider: m})
		ls := []*hybrid.Limiter{
			add(t, h, still(100), hybrid.Config{Name: "tight", MaxKeys: 4}),
			add(t, h, hybridlimit.TokenBucket(1000, time.Second, 2000), hybrid.Config{Name: "hot"}),
		}
		calls, err := h.Concurrency(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{Name: "calls"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(learnt)
		const callers, each = 8, 200
		var wg sync.WaitGroup
		for g := range callers {
			wg.Go(func() {
				for i := range each {
					ask(t, ls[i%2], fmt.Sprint("k", (g+i)%6), 1)
					p, _ := acquire(t, calls, "k", 1)
					time.Sleep(time.Millisecond)
					p.Release()
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				for range 40 {
					m.Collect(t)
					for _, l := range ls {
						l.Stats()
					}
					calls.Stats()
					h.Stats()
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		for _, l := range ls {
			if n := l.Stats().Decisions(); n != callers*each/2 {
				t.Errorf("%s: %d decisions, want %d", l.Name(), n, callers*each/2)
			}
		}
		wg.Go(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		m.Collect(t)
		wg.Wait()
	})
}
