package spend_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestOthersHaveWhatComesBack has two processes. One was denied while the other one had all units. It asks again long
// after these came back, and tells its view of an empty bucket. The bucket keeps the units.
func TestOthersHaveWhatComesBack(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		for _, limit := range []hybridlimit.Limit{
			hybridlimit.TokenBucket(1, time.Hour, 100), hybridlimit.LeakyQueue(1, time.Hour, 100), hybridlimit.FixedWindow(100, 24*time.Hour),
		} {
			synctest.Test(t, func(t *testing.T) {
				both := fleet(t, redistest.NewBubble(t), 2, limit, hybrid.Config{Mode: mode, MaxWait: time.Second})
				s := begin(t, ask(both[0], 100))
				time.Sleep(time.Second)
				if res, err := both[1].Allow(t.Context(), "k"); err != nil || res.Allowed {
					t.Errorf("%v, %v: a unit more than there are: %+v, %v", mode, limit, res, err)
				}
				if _, err := s.Use(t.Context(), 0, 0); err != nil {
					t.Error(err)
				}
				if err := s.Settle(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Second)
				begin(t, ask(both[1], 97)) // a queue leases slots
			})
		}
	}
}
