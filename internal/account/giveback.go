package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the return of leased units that the process does not spend. A bucket takes units back that its ledger
// holds, a window all that it has counted (rules 24 to 30 of docs/protocol.md). Slots of a queue are not returned:
// their time passes.

// idleAfter returns the time (ns) without a use of the leases after which the process returns them. It is T, but at
// most a quarter of the life of a lease. A unit that is on its way back cannot be spent while Redis hangs, so units in
// use stay.
func (c *Conditions) idleAfter() int64 { return min(c.Interval, algo.MaxLease*1000/4) }

// returnable returns the held units that Redis takes back: of a bucket, those in its ledger, and of a window all.
func (a *Account) returnable() (units int64) {
	for _, l := range a.leases {
		if l.booked || l.window != 0 {
			units += l.units
		}
	}
	return units
}

// disown makes the held units no longer returnable, because the limit that Redis counted them in is no longer the
// key's. They keep their end. It returns the units that are lost.
func (a *Account) disown() (lost int64) {
	lost, a.booked.over, a.ahead = a.booked.over+a.ahead.units, 0, ahead{}
	if !a.frozen {
		a.booked = booking{}
	}
	for i := range a.leases {
		a.leases[i].booked, a.leases[i].window = false, 0
	}
	return lost
}

// MustReturn returns the leased units that are lost with the account unless Redis takes them back first.
func (a *Account) MustReturn() int64 {
	return a.returnable() + a.ahead.units + a.booked.over + a.booked.back
}

// watch sets the time of the next decision on the returnable units, after an answer with a lease of leased units.
func (a *Account) watch(c *Conditions, leased, now int64) {
	if leased > 0 || a.spentAt == 0 {
		a.spentAt = now
	}
	if c.windowed() {
		if leased > 0 || a.lookBy == 0 {
			a.lookBy, a.paced = now+a.looksEvery(c), pacedFor(a.Held(), now, a.LeaseEnds())
		}
		return
	}
	a.lookBy = now + algo.MaxLease*1000
	if _, end := a.renewable(); end > 0 {
		a.lookBy = end
	}
	a.lookBy -= c.lookEarly()
	if a.booked.had >= c.worthTelling() {
		a.lookBy = min(a.lookBy, max(a.clipsAt(c)-2*c.RTT-2*c.Tick, now+c.idleAfter()))
	}
}

// lookEarly returns the time (ns) before the end of a lease at which the process looks whether it has use for it.
func (c *Conditions) lookEarly() int64 { return c.idleAfter() + 2*c.RTT + 2*c.Tick }

// LookAt returns the time (ns) at which Send must be called, even if no event asks for it: units may have to go back to
// Redis, or a lease of the next window is due. 0: at no time.
func (a *Account) LookAt(c *Conditions, now int64) int64 {
	at, next := a.returnAt(c, now), a.aheadAt(c, now)
	if begin := a.ahead.begin; a.ahead.units > 0 && !a.frozen && c.looksAtPace() && (next == 0 || begin < next) {
		next = begin // the first look of that window
	}
	if next > 0 && (at == 0 || next < at) {
		at = max(next, now)
	}
	return at
}

// returnAt returns the time (ns) of the next decision to return units; 0: there is none.
func (a *Account) returnAt(c *Conditions, now int64) int64 {
	switch {
	case a.frozen || c.Broken:
		return 0
	case a.booked.over+a.refunds.units() > 0:
		return now
	case a.leaving && a.returnable()+a.ahead.units > 0:
		return now
	case a.lookBy == 0 || a.returnable()+a.untoldInLedger() == 0:
		return 0
	case a.view.ends != 0 && a.lookBy >= a.LeaseEnds(): // a lease ends with its window
		return 0
	}
	// The first look takes the budget back. The second one then knows whether units were spent since.
	first := a.lookBy
	if !c.windowed() || !c.looksAtPace() && !a.wanted {
		first -= c.idleAfter()
	}
	if a.looksEarly(c, a.lookBy) {
		first = min(first, a.view.received+c.idleAfter())
	}
	if now < first {
		return first
	}
	return max(a.lookBy, now)
}

// surplus returns the returnable units that go back with a sync at now. wanting: a call waits for more than is in hand.
// due: the units that stay must be renewed now.
func (a *Account) surplus(c *Conditions, wanting bool, now int64) (units int64, due bool) {
	units = a.returnable()
	quiet := now - a.spentAt
	switch {
	case units == 0:
		return 0, false
	case c.Closing || wanting || a.leaving:
		return units, false
	case c.windowed():
		return a.surplusOfWindow(c, units, now), false
	}
	demand := a.demand.perSecond(now)
	due = now >= a.lookBy && now >= a.LeaseEnds()-c.lookEarly()
	switch {
	case quiet >= c.idleAfter() && float64(quiet)*demand >= 2e9, due && demand < leasable:
		return units, due
	case !due:
		return 0, false
	}
	return units - min(units, int64(math.Ceil(demand))), due
}

// giveBack takes units out of the hand. It returns the units that the op returns, with those whose life is over, and
// the number of their window; 0: they are in the ledger. leaving: the key is left, so if nothing else goes back, the
// units of the next window do.
func (a *Account) giveBack(units int64, leaving bool) (back, window int64) {
	back, a.booked.over = a.booked.over, 0
	if leaving && units == 0 && a.ahead.units > 0 {
		back, window, a.ahead = a.ahead.units, a.askedAhead, ahead{}
	}
	for i := range a.leases {
		l := &a.leases[i]
		n := min(units, l.units)
		if l.booked || l.window != 0 && n > 0 { // all are of one kind, and of one window: others have ended
			back, window = back+n, l.window
			l.units, units = l.units-n, units-n
		}
	}
	a.close()
	return back, window
}

// takenBack returns the returned units that Redis took back, and those that it did not.
func (a *Account) takenBack(ans Answer) (taken, late int64) {
	if ans.Refused {
		return 0, a.booked.back
	}
	return a.booked.back, 0
}
