package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the leases: the units that a process holds, and the times at which it asks for more. Redis decides the
// size of a lease: internal/algo/lease.go.

// lease is units that are debited in Redis and held in this process.
type lease struct {
	units  int64
	end    int64 // ns; from then on the units must not be spent
	booked bool  // Redis's ledger holds the units, so they can be renewed and returned
	window int64 // of a window: its number, in which the units can be returned; 0: they cannot

	// The next fields are set for a queue: see queue.go.
	next int64 // ns; the time at which its next unit is served
	each int64 // ns for one unit; 0: these are not slots
}

// booking is the units of this process in Redis's ledger. The next sync tells Redis how many of them are still held.
type booking struct {
	gen  int64 // generation of the ledger; 0: the ledger holds nothing
	had  int64 // units
	kept int64 // units that the sync in flight asks to renew
	back int64 // units that the sync in flight returns
	over int64 // units whose life is over, which the next sync returns
}

// renewable returns the held units that the ledger holds, and their end.
func (a *Account) renewable() (units, end int64) {
	for _, l := range a.leases {
		if l.booked && l.units > 0 {
			units, end = units+l.units, l.end
		}
	}
	return units, end
}

// use takes units that a call spends from the leases.
func (a *Account) use(units, now int64) {
	if units > 0 {
		a.spentAt = now
		a.spend(units)
	}
}

// spend takes units from the leases, the older first.
func (a *Account) spend(units int64) {
	first := min(units, a.leases[0].units)
	a.leases[0].units -= first
	if a.leases[0].window != 0 {
		a.paced.spent += units
	}
	a.leases[1].units -= units - first
	a.close()
}

// close drops a spent first lease and puts the spare in its place.
func (a *Account) close() {
	if a.leases[0].units == 0 {
		a.leases[0], a.leases[1] = a.leases[1], lease{}
	}
	if a.leases[0].units == 0 {
		a.paced = paced{}
	}
}

// expire drops leases that have ended and returns the number of lost units.
func (a *Account) expire(now int64) int64 {
	var lost int64
	for i := range a.leases {
		switch l := &a.leases[i]; {
		case now >= l.end && l.booked:
			a.booked.over += l.units
			*l = lease{}
		case now >= l.end:
			lost += l.units
			*l = lease{}
		case l.each > 0:
			lost += l.pass(now)
		}
	}
	a.close()
	if !a.frozen && a.booked != (booking{}) && now-a.view.received > ledgerMemory {
		lost += a.booked.over // the ledger has forgotten it
		a.booked = booking{}
	}
	if a.Held() == 0 {
		a.leaving, a.wanted = a.leaving && a.ahead.units > 0, false
		if a.untoldInLedger() == 0 {
			a.spentAt, a.lookBy = 0, 0
		}
	}
	return lost
}

// LeaseEnds returns the time (ns) at which the first lease ends; 0: there is none.
func (a *Account) LeaseEnds() (end int64) {
	for _, l := range a.leases {
		if l.units > 0 && (end == 0 || l.end < end) {
			end = l.end
		}
	}
	return end
}

// looksAgain returns the time at which the slow path must look at the leases: at the first end, or earlier, when they
// can be renewed.
func (a *Account) looksAgain(now int64) int64 {
	end := a.LeaseEnds()
	if units, last := a.renewable(); units > 0 && !a.frozen {
		if early := last - renewWithin(a.demand.steady(now)); early > now {
			return min(end, early)
		}
	}
	return end
}

// keep adds a lease to the held units. All booked units have one end, that of the last renewal. If both places are
// taken, the units join a lease of the same kind, the spare first, and get the earlier of the two ends. keep returns
// the units that it cannot keep: units of another kind than both leases, or a third block of slots.
func (a *Account) keep(l lease) (lost int64) {
	for i := range a.leases {
		if o := &a.leases[i]; l.booked && o.booked && o.units > 0 {
			o.units += l.units
			return 0
		}
	}
	for i := range a.leases {
		if a.leases[i].units == 0 {
			a.leases[i] = l
			return 0
		}
	}
	for i := len(a.leases) - 1; i >= 0 && l.each == 0; i-- {
		if o := &a.leases[i]; o.booked == l.booked && o.window == l.window {
			o.units, o.end = o.units+l.units, min(o.end, l.end)
			return 0
		}
	}
	return l.units
}

// renew books the part of an answer about the units that the op asked to keep. They now live until end. If the ledger
// has forgotten them, they keep their old end. renew returns the units that are lost because their life ended
// meanwhile.
func (a *Account) renew(gen, leased, end int64) (lost int64) {
	kept, over := a.booked.kept, a.booked.over
	a.booked = booking{}
	if gen != 0 && kept+leased > 0 {
		a.booked = booking{gen: gen, had: kept + leased, over: over}
	} else {
		lost = over
	}
	for i := range a.leases {
		switch l := &a.leases[i]; {
		case !l.booked || kept == 0:
		case gen == 0:
			l.booked = false
		default:
			l.end = max(l.end, end)
		}
	}
	return lost
}

// unbook gives up the booking. The held units are not renewed any more and keep their end: the ledger holds them until
// then. unbook returns the units that cannot be returned any more.
func (a *Account) unbook() (lost int64) {
	lost = a.booked.over + a.booked.back
	a.booked = booking{}
	for i := range a.leases {
		a.leases[i].booked = false
	}
	return lost
}

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

// takesLease reports whether a sync that is sent anyway should ask for a lease: the process holds few units, or it can
// renew them.
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

// leasable is the smallest demand, in units a second, for which a lease of one second may be worth a record in the
// ledger. leasableOnCredit is that of a key with plenty of units and credit: up to there, its payments, which are
// gathered, cost Redis less than its leases.
const leasable, leasableOnCredit = 2, 8

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
		life = min(algo.MaxLease, (c.Bucket.Cap-level)/c.Bucket.Refill)
		if !c.Bucket.Queue && c.Bucket.Units(level) >= 4*c.N {
			return true // the ledger has room
		}
	}
	mu := demand * float64(life) / 1e6
	return life >= algo.MinLease && mu-math.Sqrt(mu) >= 1
}

// leaseDemand returns the demand, in units a second, that a lease is for. If the calls of the last second, made by each
// process of the fleet, use half of what is left, they may be part of a burst of the fleet. A lease for the next second
// would then hold units that the burst needs elsewhere. The places of a queue are served one after the other, so no
// burst uses it up.
func (a *Account) leaseDemand(c *Conditions, now int64) float64 {
	level := c.Bucket.Cap
	if a.fresh(now) {
		level = a.level(c, now)
	}
	if c.N == 1 || c.Bucket.Queue || 2*float64(c.N)*a.demand.sum < float64(c.Bucket.Units(level)) {
		return a.demand.steady(now)
	}
	return a.demand.lasting(now)
}

// renewWithin returns the time (ns) before its end at which a lease is renewed: the time of two calls, because only
// calls look at a lease, and at most half of its life.
func renewWithin(demand float64) int64 {
	return int64(min(2e9/demand, algo.MaxLease*1000/2))
}
