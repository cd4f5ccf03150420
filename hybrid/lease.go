package hybrid

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is the units that a process has in hand, and when it wants more.
// How many it gets is Redis's to say: internal/algo/lease.go.

// lease is units already debited in Redis.
type lease struct {
	units  int64
	end    int64 // not to be spent from here on
	booked bool  // Redis's ledger holds them: they can be renewed

	// Of a queue: see slots.go.
	next int64 // when its next unit is served
	each int64 // ns that a unit takes; 0: these are not slots
}

// booking is what Redis's ledger holds for this process. The next sync tells
// it how much of that is left.
type booking struct {
	gen  int64 // 0: nothing
	had  int64 // units
	kept int64 // units that the sync on its way asks to renew
}

// held is the units in hand. Call expire first.
func (s *state) held() int64 { return s.leases[0].units + s.leases[1].units }

// renewable is the units in hand that the ledger holds, and when they end.
func (s *state) renewable() (units, end int64) {
	for _, l := range s.leases {
		if l.booked && l.units > 0 {
			units, end = units+l.units, l.end
		}
	}
	return units, end
}

// spend takes units from the leases, the older first.
func (s *state) spend(units int64) {
	first := min(units, s.leases[0].units)
	s.leases[0].units -= first
	s.leases[1].units -= units - first
	s.close()
}

// close drops a lease that is used up, and moves the spare up.
func (s *state) close() {
	if s.leases[0].units == 0 {
		s.leases[0], s.leases[1] = s.leases[1], lease{}
	}
}

// expire gives up leases that have ended and returns how many units.
func (s *state) expire(now int64) int64 {
	var lost int64
	for i := range s.leases {
		switch l := &s.leases[i]; {
		case now >= l.end:
			lost += l.units
			*l = lease{}
		case l.each > 0:
			lost += l.pass(now)
		}
	}
	s.close()
	if s.booked.gen != 0 && !s.frozen && now-s.view.received > ledgerMemory {
		s.booked = booking{} // the ledger has forgotten it
	}
	return lost
}

// firstEnd is when the first of the leases ends; 0: there is none.
func (s *state) firstEnd() (end int64) {
	for _, l := range s.leases {
		if l.units > 0 && (end == 0 || l.end < end) {
			end = l.end
		}
	}
	return end
}

// looksAgain is when the slow path should look at the leases: at the end of the
// first, or as early as they can be renewed.
func (s *state) looksAgain(now int64) int64 {
	end := s.firstEnd()
	if units, last := s.renewable(); units > 0 && !s.frozen {
		if early := last - renewWithin(s.demand.steady(now)); early > now {
			return min(end, early)
		}
	}
	return end
}

// keep puts a lease beside what is in hand. Booked units have one end, that of
// the last renewal; others that find no room join the spare, to the earlier
// end. It returns what it cannot keep: units of another kind than both, and a
// third block of slots.
func (s *state) keep(l lease) (lost int64) {
	for i := range s.leases {
		if o := &s.leases[i]; l.booked && o.booked && o.units > 0 {
			o.units += l.units
			return 0
		}
	}
	for i := range s.leases {
		if s.leases[i].units == 0 {
			s.leases[i] = l
			return 0
		}
	}
	for i := len(s.leases) - 1; i >= 0 && l.each == 0; i-- {
		if o := &s.leases[i]; o.booked == l.booked {
			o.units, o.end = o.units+l.units, min(o.end, l.end)
			return 0
		}
	}
	return l.units
}

// renew books an answer's word on the units that the op asked to keep: they
// live to end, or, where the ledger has forgotten them, no longer than they
// would have.
func (s *state) renew(gen, leased, end int64) {
	kept := s.booked.kept
	s.booked = booking{}
	if gen != 0 && kept+leased > 0 {
		s.booked = booking{gen: gen, had: kept + leased}
	}
	for i := range s.leases {
		switch l := &s.leases[i]; {
		case !l.booked || kept == 0:
		case gen == 0:
			l.booked = false
		default:
			l.end = max(l.end, end)
		}
	}
}

// prefetchAt is how many units in hand are too few: what two round trips use.
func (s *state) prefetchAt(t *terms, now int64) int64 {
	return int64(s.demand.perSecond(now) * float64(2*t.rtt) / 1e9)
}

// hasLeases says whether the mode has leases, and they would be for somebody.
func (t *terms) hasLeases() bool {
	return (t.mode == ModeAuto || t.mode == ModeStrict) && !t.closing
}

// livesOnCredit says that a key can do without leases, while there are so many
// keys that syncs have to wait: for a second at least its credit lasts. A lease
// would be gone in that time, and the next would be one more sync.
func (s *state) livesOnCredit(t *terms, now int64) bool {
	return t.behind && float64(s.creditLeft(t, now)) > s.demand.perSecond(now)
}

// takesLease says whether a sync that goes out anyway should ask for a lease:
// few units are in hand, or they can be topped up.
func (s *state) takesLease(t *terms, now int64) bool {
	if s.livesOnCredit(t, now) {
		return false
	}
	units, _ := s.renewable()
	return t.hasLeases() && (units > 0 || s.leases[1].units == 0 && s.held() <= s.prefetchAt(t, now))
}

// leasable is the demand, in units a second, from which a lease of a second
// may be worth a place in the ledger.
const leasable = 2

// worthLease says whether a sync should go out for a lease alone: to renew
// one, or because the demand supports a new one and the last view leaves room
// for it to live and something to take a part of.
func (s *state) worthLease(t *terms, now int64) bool {
	demand := s.demand.steady(now)
	if s.frozen || !t.hasLeases() || demand < leasable || now < s.turn(t) {
		return false
	}
	if s.livesOnCredit(t, now) {
		return false
	}
	if units, end := s.renewable(); units > 0 && end-now < renewWithin(demand) {
		return true
	}
	if !s.takesLease(t, now) || s.held() > s.prefetchAt(t, now) {
		return false
	}
	if !s.view.known {
		return true
	}
	if !s.fresh(now) {
		return false // the next call asks
	}
	level := s.level(t, now)
	var life int64
	if t.windowed() {
		life = min(algo.WindowLease, (s.view.ends-now)/1000)
		if t.bucket.Units(level) < 2*t.n {
			return false
		}
	} else {
		life = min(algo.MaxLease, (t.bucket.Cap-level)/t.bucket.Refill)
		if !t.bucket.Queue && t.bucket.Units(level) >= 4*t.n {
			return true // the ledger has room
		}
	}
	mu := demand * float64(life) / 1e6
	return life >= algo.MinLease && mu-math.Sqrt(mu) >= 1
}

// renewWithin is how long before its end a lease is renewed: two calls' worth
// of time, since only calls look at it, and never more than half of its life.
func renewWithin(demand float64) int64 {
	return int64(min(2e9/demand, algo.MaxLease*1000/2))
}
