package account

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Redis refuses a direct call for units that a sync in flight leases to the same process. So the call waits for the sync first, and
// looks into the hand again.
func TestDirectCallBesideALeaseInFlight(t *testing.T) {
	for _, lease := range []int64{0, 4} {
		c := windowTerms()
		c.Credit = 0
		a := inWindow(c, 5_500_000, 10, 500e3)
		a.busy(100, sec)
		if op, ok := a.freeze(c, []int64{1}, sec); !ok || op.Demand == 0 || op.Ahead {
			t.Fatalf("%+v, sent: %t; want an ask for a lease", op, ok)
		}
		if _, decided := a.DirectBegin(c, 4, sec); decided {
			t.Fatal("the call was decided without Redis")
		}
		if must, twice := a.MustSettle(); !must || !twice || !a.MayHold() {
			t.Errorf("with a lease in flight: must settle %t, twice %t; may hold units %t", must, twice, a.MayHold())
		}
		a.settle(c, Answer{Answer: algo.Answer{Cap: 10, Level: 9 - lease, Granted: 1, Lease: lease, Life: 500e3, Ends: 499e3}, RedisNow: 5_501_000, Sent: sec}, []int64{1}, sec+ms)
		a.DirectEnd(c, 4, 0)
		if a.MayHold() != (lease > 0) {
			t.Errorf("after a lease of %d: may hold units %t", lease, a.MayHold())
		}
		if must, twice := a.MustSettle(); must != (lease > 0) || twice {
			t.Errorf("after a lease of %d: must settle %t, twice %t", lease, must, twice)
		}
		if _, decided := a.DirectBegin(c, 4, sec+ms); decided != (lease >= 4) {
			t.Errorf("after a lease of %d: a call for 4 units is decided without Redis: %t", lease, decided)
		}
	}
}
