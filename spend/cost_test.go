package spend_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/spend"
)

// TestSettleCostsOneSyncInT settles 100 calls a second of one key. Give-backs that come while a sync is on its way wait
// for T too.
func TestSettleCostsOneSyncInT(t *testing.T) {
	const syncInterval = 50 * time.Millisecond // the default
	for _, name := range []string{"hybrid auto", "hybrid strict", "hybrid deferred"} {
		for _, limit := range []hybridlimit.Limit{hybridlimit.PerSecond(10_000), hybridlimit.FixedWindow(1_000_000, time.Minute)} {
			synctest.Test(t, func(t *testing.T) {
				w := worlds[name](t, limit)
				l := w.limiter.(*hybrid.Limiter)
				var calls sync.WaitGroup
				var before int64
				var start time.Time
				for i := range 300 {
					if i == 100 { // the process knows its demand
						before, start = l.Stats().Ops, time.Now()
					}
					time.Sleep(10 * time.Millisecond)
					calls.Go(func() {
						s, _, err := spend.Begin(t.Context(), ask(l, 8))
						if err != nil {
							t.Error(err)
						}
						time.Sleep(130 * time.Millisecond)
						if _, err := s.Use(t.Context(), 0, 3); err != nil {
							t.Error(err)
						}
						if err := s.Settle(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
				calls.Wait()
				most := int64(time.Since(start)/syncInterval) + 6 // some are for leases
				if got := l.Stats().Ops - before; got > most {
					t.Errorf("%s, %v: %d messages, want at most %d", name, limit, got, most)
				}
			})
		}
	}
}
