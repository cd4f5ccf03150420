package account

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the plain ops: the lone ask, which only asks for the units of waiting calls, and the payment, which
// only tells owed units. Both may tell a view. They want neither a lease nor a next poll. Redis decides them at a
// fraction of the cost of other ops. The first message with lone asks has no envelope: if Redis applies such an op
// twice, units are lost, but none is admitted twice.

// mayBePlain reports whether the next op may be a plain one. No units are held, and the demand is too small for a
// lease. There is no sign of contention, which next polls would share out.
func (a *Account) mayBePlain(c *Conditions, now int64) bool {
	switch {
	case a.Leased() > 0, a.booked != (booking{}), a.leaving, c.Closing, a.refunds.units() > 0, a.local.admitted > 0:
		return false
	case c.Bucket.Queue: // its last places are always contended
		return false
	case a.view.known() && c.Lost > 0 && a.view.received <= c.Lost: // the op says that writes were lost since
		return false
	case a.view.known() && a.hopes(c) && now-a.view.received < ledgerMemory: // other processes hold units, so an ask may be refused
		return false
	case a.telling(c, now) && (c.windowed() || a.level(c, now) < c.Bucket.Cap/2):
		return false
	}
	return !c.hasLeases() || a.demand.steady(now) < a.leaseFrom(c, now)
}

// telling reports whether Redis may need the view.
func (a *Account) telling(c *Conditions, now int64) bool {
	return a.view.known() && a.Tells(c.Bucket, now)
}

// mayAskAlone reports whether the next op may be a lone ask.
func (a *Account) mayAskAlone(c *Conditions, asks []int64, now int64) bool {
	if len(asks) == 0 || slices.Contains(asks, 0) { // an ask of 0 is a booking, before which Redis must have all units
		return false
	}
	return a.Open() == 0 && a.mayBePlain(c, now)
}

// askAlone begins a sync with a lone ask.
func (a *Account) askAlone(c *Conditions, asks []int64, now int64) algo.Op {
	op := algo.Op{Asks: asks}
	if a.telling(c, now) {
		op.View = a.told(c)
	}
	a.frozen, a.asked, a.lone, a.aside, a.window = true, true, true, 0, 0
	if a.stuckAt == 0 {
		a.stuckAt = now
	}
	return op
}

// mayPayAlone reports whether the next op may be a payment. Owed units of a window need their window. A payment that
// would leave little needs a next poll, and with it the demand.
func (a *Account) mayPayAlone(c *Conditions, asks []int64, now int64) bool {
	return len(asks) == 0 && a.pending > 0 && a.pending*c.Bucket.Unit < c.Bucket.Cap/4 && !c.windowed() && a.mayBePlain(c, now)
}

// payAlone begins a sync with a payment.
func (a *Account) payAlone(c *Conditions, now int64) algo.Op {
	op := algo.Op{Owed: a.pending, Div: 2 * c.N}
	if a.telling(c, now) {
		op.View = a.told(c)
	}
	a.inflight, a.sentIn, a.pending, a.window, a.giving, a.aside = a.pending, a.window, 0, 0, 0, 0
	a.frozen, a.asked, a.leasing = true, false, false
	if a.stuckAt == 0 {
		a.stuckAt = now
	}
	return op
}
