package account

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the lone ask: an op that only asks, for the units of waiting calls. It tells Redis nothing else, and wants neither
// a lease nor a next poll. Redis decides it at a fraction of the cost of other ops. The first message with it has no envelope: if
// Redis applies the op twice, units are lost, but none is admitted twice.

// mayAskAlone reports whether the next op may be a lone ask. Redis need not be told of any unit, nor of the view. The demand is
// too small for a lease. There is no sign of contention, which next polls would share out.
func (a *Account) mayAskAlone(c *Conditions, asks []int64, now int64) bool {
	switch {
	case len(asks) == 0, slices.Contains(asks, 0): // an ask of 0 is a booking, before which Redis must have all units
		return false
	case a.Open() > 0, a.Leased() > 0, a.booked != (booking{}), a.leaving, c.Closing:
		return false
	case c.Bucket.Queue: // its last places are always contended
		return false
	case a.view.known() && a.Tells(c.Bucket, now):
		return false
	}
	return a.demand.steady(now) < leasable
}

// askAlone begins a sync with a lone ask.
func (a *Account) askAlone(asks []int64, now int64) algo.Op {
	a.frozen, a.asked, a.lone, a.aside, a.window = true, true, true, 0, 0
	if a.stuckAt == 0 {
		a.stuckAt = now
	}
	return algo.Op{Asks: asks}
}
