package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is the units that a process has in hand, and when it wants more. Redis decides how many it gets:
// internal/algo/lease.go.

// lease is units that are already debited in Redis.
type lease struct {
	units  int64
	end    int64 // ns; not to be spent from here on
	booked bool  // Redis's ledger holds them, so they can be renewed

	// Of a queue: see queue.go.
	next int64 // ns; when its next unit is served
	each int64 // ns that a unit takes; 0: these are not slots
}

// booking is what Redis's ledger holds for this process. The next sync tells Redis how much of that is left.
type booking struct {
	gen  int64 // generation of the ledger; 0: it holds nothing
	had  int64 // units
	kept int64 // units that the sync on its way asks to renew
}

// renewable is the units in hand that the ledger holds, and when they end.
func (a *Account) renewable() (units, end int64) {
	for _, l := range a.leases {
		if l.booked && l.units > 0 {
			units, end = units+l.units, l.end
		}
	}
	return units, end
}

// spend takes units from the leases, the older first.
func (a *Account) spend(units int64) {
	first := min(units, a.leases[0].units)
	a.leases[0].units -= first
	a.leases[1].units -= units - first
	a.close()
}

// close drops a lease that is used up, and moves the spare up.
func (a *Account) close() {
	if a.leases[0].units == 0 {
		a.leases[0], a.leases[1] = a.leases[1], lease{}
	}
}

// expire gives up leases that are over and returns how many units.
func (a *Account) expire(now int64) int64 {
	var lost int64
	for i := range a.leases {
		switch l := &a.leases[i]; {
		case now >= l.end:
			lost += l.units
			*l = lease{}
		case l.each > 0:
			lost += l.pass(now)
		}
	}
	a.close()
	if a.booked.gen != 0 && !a.frozen && now-a.view.received > ledgerMemory {
		a.booked = booking{} // the ledger has forgotten it
	}
	return lost
}

// LeaseEnds is when (ns) the first of the leases ends; 0: there is none.
func (a *Account) LeaseEnds() (end int64) {
	for _, l := range a.leases {
		if l.units > 0 && (end == 0 || l.end < end) {
			end = l.end
		}
	}
	return end
}

// looksAgain is when the slow path should look at the leases: at the end of the first, or as early as they can be renewed.
func (a *Account) looksAgain(now int64) int64 {
	end := a.LeaseEnds()
	if units, last := a.renewable(); units > 0 && !a.frozen {
		if early := last - renewWithin(a.demand.steady(now)); early > now {
			return min(end, early)
		}
	}
	return end
}

// keep puts a lease beside what is in hand. Booked units have one end, that of the last renewal. Other units that find no room
// join the spare, up to the earlier end. It returns the units that it cannot keep: of another kind than both leases, or a third
// block of slots.
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
		if o := &a.leases[i]; o.booked == l.booked {
			o.units, o.end = o.units+l.units, min(o.end, l.end)
			return 0
		}
	}
	return l.units
}

// renew books the part of an answer that is about the units that the op asked to keep. They live until end, or, where the
// ledger has forgotten them, no longer than before.
func (a *Account) renew(gen, leased, end int64) {
	kept := a.booked.kept
	a.booked = booking{}
	if gen != 0 && kept+leased > 0 {
		a.booked = booking{gen: gen, had: kept + leased}
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
}

// unbook gives up the booking. The units in hand are not renewed any more, and end as before: the ledger holds them until then.
func (a *Account) unbook() {
	a.booked = booking{}
	for i := range a.leases {
		a.leases[i].booked = false
	}
}

// prefetchAt is how many units in hand are too few: as many as two round trips use.
func (a *Account) prefetchAt(c *Conditions, now int64) int64 {
	return int64(a.demand.perSecond(now) * float64(2*c.RTT) / 1e9)
}

// livesOnCredit reports whether the key can do without leases while there are so many keys that syncs have to wait: its credit
// lasts for a second at least. A lease would be used up in that time, and the next one would be one more sync.
func (a *Account) livesOnCredit(c *Conditions, now int64) bool {
	return c.Behind && float64(a.CreditLeft(c, now)) > a.demand.perSecond(now)
}

// takesLease reports whether a sync that goes out anyway should ask for a lease: few units are in hand, or they can be topped
// up.
func (a *Account) takesLease(c *Conditions, now int64) bool {
	if a.livesOnCredit(c, now) {
		return false
	}
	units, _ := a.renewable()
	return c.hasLeases() && (units > 0 || a.leases[1].units == 0 && a.Held() <= a.prefetchAt(c, now))
}

// leasable is the demand, in units a second, from which a lease of a second may be worth a place in the ledger.
const leasable = 2

// worthLease reports whether a sync should go out for a lease alone: to renew one, or because the demand supports a new one,
// and by the last view it would live and be a part of something.
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
	if !a.view.known {
		return true
	}
	if !a.fresh(now) {
		return false // the next call asks
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

// renewWithin is how long (ns) before its end a lease is renewed: two calls' worth of time, since only calls look at it, and
// never more than half of its life.
func renewWithin(demand float64) int64 {
	return int64(min(2e9/demand, algo.MaxLease*1000/2))
}
