//go:build !race

// An hour and a half of heartbeats, in virtual time.

package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestNamesAreToldAgainAfterALoss checks N of groups that share no limiter after Redis has
// lost everything: a process that started later does not count the others for good.
func TestNamesAreToldAgainAfterALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		hubOf(t, b, "mail")
		time.Sleep(2500 * time.Millisecond)
		b.Mini.FlushAll()
		time.Sleep(2500 * time.Millisecond)
		web := hubOf(t, b, "api")
		time.Sleep(2500 * time.Millisecond)
		if got := sizes(web); got != "api 1" {
			t.Errorf("N is %s", got)
		}
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		b.Mini.Del(fleetNames.GroupNames(groupOf(hybridlimit.PerSecond(1000), "mail")))
		other := hubOf(t, b, "other")
		time.Sleep(2500 * time.Millisecond)
		if got := sizes(other); got != "other 2" {
			t.Errorf("a process whose limiters are not known does not count: N is %s", got)
		}
		for range 91 { // processes write their names again in 30 to 90 minutes
			if time.Sleep(time.Minute); sizes(other) == "other 1" {
				break
			}
		}
		if got := sizes(other); got != "other 1" {
			t.Errorf("an hour and a half later N is %s", got)
		}
	})
}
