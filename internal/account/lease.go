package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// leasable is the smallest demand, in units a second, for which a lease of one second may be worth a record in the
// ledger. leasableOnCredit is that of a key with plenty of units and credit: up to there, its payments, which are
// gathered, cost Redis less than its leases.
const leasable, leasableOnCredit = 2, 8

// prefetchAt returns the number of held units at which the process asks for more: the demand of two round trips.
func (a *Account) prefetchAt(c *Conditions, now int64) int64 {
	return int64(a.demand.perSecond(now) * float64(2*c.RTT) / 1e9)
}

// livesOnCredit reports whether the key needs no leases, for one of two reasons. It holds none, and its demand is below
// leaseFrom. Or there are so many keys that syncs have to wait, and its credit lasts for more than a second: a lease
// would be spent in that time, and each further lease would cost another sync.
func (a *Account) livesOnCredit(c *Conditions, now int64) bool {
	if from := a.leaseFrom(c, now); from > leasable && a.Leased() == 0 && a.demand.steady(now) < from {
		return true
	}
	return c.Behind && float64(a.CreditLeft(c, now)) > a.demand.perSecond(now)
}

// takesLease reports whether a sync that is sent anyway should ask for a lease: few units are held, or they can be
// renewed.
func (a *Account) takesLease(c *Conditions, now int64) bool {
	if a.livesOnCredit(c, now) {
		return false
	}
	if a.ahead.units > 0 && now >= a.view.ends { // those come into the hand at once
		return false
	}
	units, _ := a.renewable()
	return c.hasLeases() && (units > 0 || a.leases[1].units == 0 && a.Held() <= a.prefetchAt(c, now))
}

// leaseFrom returns the smallest demand for which the key takes leases. On credit, half of C must last for the time in
// which payments are gathered.
func (a *Account) leaseFrom(c *Conditions, now int64) float64 {
	if c.windowed() || c.Bucket.Queue || a.view.known() && a.level(c, now) < c.Bucket.Cap/2 {
		return leasable
	}
	return max(leasable, min(leasableOnCredit, float64(c.Credit)/2/(float64(c.Interval+c.lead())/1e9)))
}

// worthLease reports whether a sync should be sent only for a lease: to renew one, or to get a new one. A new one needs
// enough demand. By the last view, there must be units to lease, and the lease must live long enough.
func (a *Account) worthLease(c *Conditions, now int64) bool {
	demand := a.demand.steady(now)
	if a.frozen || !c.hasLeases() || demand < leasable || now < a.NextPoll(c) {
		return false
	}
	if a.livesOnCredit(c, now) {
		return false
	}
	if units, end := a.renewable(); units > 0 && end-now < renewWithin(demand) {
		return true
	}
	if !a.takesLease(c, now) || a.Held() > a.prefetchAt(c, now) {
		return false
	}
	if !a.view.known() {
		return true
	}
	if !a.fresh(now) {
		return a.ranOut(now) // otherwise the next call asks
	}
	level := a.level(c, now)
	var life int64
	if c.windowed() {
		life = min(algo.WindowLease, (a.view.ends-now)/1000)
		if c.Bucket.Units(level) < 2*c.N {
			return false
		}
	} else {
		life = min(c.Bucket.Life(c.MaxLife), (c.Bucket.Cap-level)/c.Bucket.Refill)
		if !c.Bucket.Queue && c.Bucket.Units(level) >= 4*c.N {
			return true // the ledger has room
		}
	}
	mu := demand * float64(life) / 1e6
	return life >= algo.MinLease && mu-math.Sqrt(mu) >= 1
}

// leaseDemand returns the demand, in units a second, that a lease is for. If the calls of the last second, made by each
// process of the fleet, use half of what is left, they may be part of a burst of the fleet. A lease would then hold
// units that the burst needs elsewhere. If they would do so in the life of a long lease, a lease is for a second: Redis
// multiplies the demand by the life, if the process has a lease in the ledger already. The places of a queue are served
// one after the other, so no burst uses it up.
func (a *Account) leaseDemand(c *Conditions, now int64) float64 {
	level := c.Bucket.Cap
	if a.fresh(now) {
		level = a.level(c, now)
	}
	if c.N == 1 || c.Bucket.Queue {
		return a.demand.steady(now)
	}
	life := 1.0 // seconds
	if c.hasLedger() && a.booked.had > 0 {
		life = float64(c.life()) / 1e9
	}
	switch used, left := 2*float64(c.N)*a.demand.sum, float64(c.Bucket.Units(level)); {
	case used >= left:
		return a.demand.lasting(now)
	case used*life >= left:
		return a.demand.steady(now) / life
	}
	return a.demand.steady(now)
}

// renewWithin returns the time (ns) before its end at which a lease is renewed: the time of two calls, because only
// calls look at a lease, and at most half of lookEvery.
func renewWithin(demand float64) int64 {
	return int64(min(2e9/demand, lookEvery/2))
}

// looksAgain returns the time of the slow path's next look at the leases: their first end, or earlier, when they can be
// renewed.
func (a *Account) looksAgain(now int64) int64 {
	end := a.LeaseEnds()
	if units, last := a.renewable(); units > 0 && !a.frozen {
		if early := last - renewWithin(a.demand.steady(now)); early > now {
			return min(end, early)
		}
	}
	return end
}

// aheadSpan is the longest time (ns) before the end of a window at which a lease of the next one is taken.
const aheadSpan = int64(1e9)

// aheadAt returns the time (ns) at which a sync must be sent for a lease of the next window; 0: at no time. It is in
// the last quarter of the window, at another moment in each process: otherwise all processes would ask at once.
func (a *Account) aheadAt(c *Conditions, now int64) int64 {
	if !c.windowed() || c.Window.FromUse || !c.hasLeases() || c.Broken || a.frozen || c.Window.Period < algo.AheadPeriod {
		return 0
	}
	h := a.here(now)
	if a.ahead.units > 0 { // there may be no sync in that window before
		h = place{a.askedAhead, a.ahead.end}
	}
	if h.window == 0 || a.askedAhead > h.window { // it was asked for
		return 0
	}
	// The lease must be worth a sync: see worthLease.
	if a.demand.steady(now)*float64(min(c.Window.Period, algo.WindowLease)) < leasable*1e6 {
		return 0
	}
	span := min(c.Window.Period*1000/4, aheadSpan)
	const parts = 1009
	at := h.ends - span + span*3/4*(a.view.redisAt%parts)/parts/1e6*1e6
	if a.ahead.units > 0 { // after a late answer its end is early, but before its begin the sync would be for the same window
		at = max(at, a.ahead.begin)
	}
	return at
}

func (a *Account) wantsAhead(c *Conditions, now int64) bool {
	at := a.aheadAt(c, now)
	return at > 0 && now >= at
}

// spareHere returns the units of a sliding window that the process will hardly need until it ends. They go back with
// the ask for units of the next window: the two windows share one limit, so each of them makes room there.
func (a *Account) spareHere(c *Conditions, now int64) int64 {
	if !c.Window.Sliding {
		return 0
	}
	mu := a.demand.perSecond(now) * float64(max(a.here(now).ends-now, 0)) / 1e9
	return max(0, a.returnable()-int64(math.Ceil(mu+math.Sqrt(mu))))
}
