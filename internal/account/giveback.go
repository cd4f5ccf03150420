package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the return of leased units that the process does not spend. A bucket takes units back that its ledger
// holds, a window all that it has counted (rules 24 to 30 of docs/protocol.md). Slots of a queue are not returned:
// their time passes.
//
// Looks at the leases of a bucket also tell Redis early which units are spent. The ledger keeps the bucket from filling
// up until it knows that, so a pause of the callers would cost units.
//
// A lease of a window lives until its window ends, so units that the process will not spend would be refused to others
// for all that time. A lease is for algo.WindowLease at most, so in a window that is not much longer it is a large part
// of the process's share: the process looks at its pace. In a longer one it waits for the refusal of another process:
// see Want.

// watch sets the time of the next decision on the returnable units, after an answer with a lease of leased units. A call
// has used the key if the op carried one. A lease of a bucket that a look renewed says nothing about the use.
func (a *Account) watch(c *Conditions, leased int64, carried bool, now int64) {
	if leased > 0 && (carried || c.windowed()) || a.spentAt == 0 {
		a.spentAt = now
	}
	if c.windowed() {
		if leased > 0 || a.lookBy == 0 {
			a.lookBy, a.paced = now+a.looksEvery(c), pacedFor(a.Held(), now, a.LeaseEnds())
		}
		return
	}
	a.lookBy = now + c.looksWithin()
	if units, end := a.renewable(); units > 0 {
		a.lookBy = min(a.lookBy, end)
		if leased > 0 && c.longLeases() {
			a.paced = pacedFor(units, now, end)
		}
	}
	a.lookBy -= c.lookEarly()
	if a.booked.had >= c.worthTelling() {
		a.lookBy = min(a.lookBy, max(a.clipsAt(c)-2*c.RTT-2*c.Tick, now+c.idleAfter()))
	}
}

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
	case a.booked.over > 0:
		return now
	case a.leaving && a.returnable()+a.ahead.units > 0:
		return now
	case a.lookBy == 0 || a.returnable()+a.untoldInLedger() == 0:
		return 0
	case a.view.ends != 0 && a.lookBy >= a.LeaseEnds(): // a lease ends with its window
		return 0
	}
	// The first look takes the budget back. The second one then knows whether units were spent since. All units of the
	// budget count as spent at the first look, so a look that is to find an idle process begins early.
	first := a.lookBy
	if !c.windowed() || !c.looksAtPace() && !a.wanted {
		first -= c.idleAfter()
	}
	if a.looksEarly(c, a.lookBy) {
		first = min(first, a.view.received+c.idleAfter()/2)
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
	// The units that the process would have spent since, had its demand not fallen.
	missed := demand * math.Exp(min(float64(quiet)/demandMemory, 30)) * float64(quiet) / 1e9
	idle := quiet >= c.idleAfter() && missed >= 2
	if c.longLeases() && now < a.LeaseEnds()-max(c.lookEarly()+c.idleAfter(), renewWithin(demand)) {
		// One of several looks at the lease, each of which may meet a pause.
		idle = quiet >= surelyIdle || idle && missed >= 6
	}
	switch {
	case idle, due && demand < leasable:
		return units, due
	case due:
		return max(0, units-int64(math.Ceil(demand*float64(c.life())/1e9))), true
	case now < a.lookBy || !c.longLeases():
		return 0, false
	}
	surplus := a.paced.surplus(units, a.LeaseEnds()-now, now)
	switch {
	case surplus < c.worthTelling():
		return 0, false
	case missed >= 2: // the rest would follow soon
		return units, false
	}
	a.paced = pacedFor(units-surplus, now, a.LeaseEnds())
	return surplus, false
}

// surelyIdle is the time (ns) without a use after which units of a long lease go back at an early look, however small the
// demand was.
const surelyIdle = lookEvery * 95 / 100

// lookSoonest is the shortest time (ns) between two looks that find nothing to tell.
const lookSoonest = int64(5e6)

// tellsSpent reports whether the process is idle, and should tell Redis that its leases are spent: otherwise the bucket
// stops filling up.
func (a *Account) tellsSpent(c *Conditions, now int64) bool {
	quiet := now - a.spentAt
	return !c.windowed() && !a.frozen && a.lookBy > 0 && now >= a.lookBy && a.untoldInLedger() >= c.worthTelling() &&
		quiet >= c.idleFor(a.demand.perSecond(now))
}

// looksEarly reports whether the next look is only for tellsSpent: it is soon after the answer, the leases do not end
// soon, and the key stays.
func (a *Account) looksEarly(c *Conditions, now int64) bool {
	by := min(a.LeaseEnds(), a.view.received+c.looksWithin())
	return !c.windowed() && !c.Closing && !a.leaving && now < by-c.lookEarly()-c.idleAfter()
}

// onlyLooks reports whether a sync that has nothing to tell is due to a look that is only for tellsSpent, and not to a
// call. It then takes no lease and returns none.
func (a *Account) onlyLooks(c *Conditions, now int64) bool {
	return a.spentAt > 0 && now-a.spentAt >= max(lookSoonest, 2*c.RTT) && (a.Held() == 0 || a.looksEarly(c, now))
}

// lookLater sets the next look after one of a bucket that found nothing to tell: after as much time as since the last
// answer, so that a busy key is seldom looked at.
func (a *Account) lookLater(c *Conditions, now int64) {
	if c.windowed() || a.lookBy == 0 || now < a.lookBy {
		return
	}
	a.lookBy = now + min(c.looksWithin(), max(c.idleAfter(), now-a.view.received, lookSoonest))
	next := func(at int64) {
		if at > now {
			a.lookBy = min(a.lookBy, max(at, now+lookSoonest))
		}
	}
	if now-a.spentAt >= c.idleAfter() { // it may be idle: its demand says for how long it must not have been used
		next(a.spentAt + c.idleFor(a.demand.perSecond(now)))
	}
	if c.longLeases() {
		next(a.spentAt + surelyIdle)
	}
	next(a.LeaseEnds() - c.lookEarly())
}

// looksEvery returns the time (ns) between two looks at leases of a window.
func (a *Account) looksEvery(c *Conditions) int64 {
	switch {
	case c.looksAtPace():
		return max(c.idleAfter(), min(c.Window.Period*1000/windowLooks, looksMost))
	case a.wanted:
		return max(c.idleAfter(), looksMost)
	}
	return c.idleWindow()
}

// Wanting reports whether the other processes should hear that units of this key are wanted: the window is used up, and
// they may hold some of its units. Call it after an answer.
func (a *Account) Wanting(c *Conditions) bool {
	return a.hopesHere(c) && c.hasLeases() && c.Window.Period*1000 >= wantedFrom
}

// Want notes that another process was refused units of the key.
func (a *Account) Want(c *Conditions, now int64) {
	if c.windowed() && a.Held() > 0 && !a.wanted {
		a.wanted, a.lookBy = true, now
	}
}

func (a *Account) surplusOfWindow(c *Conditions, units, now int64) int64 {
	if a.lookBy == 0 || now < a.lookBy {
		return 0
	}
	every, quiet, rest := a.looksEvery(c), now-a.spentAt, a.LeaseEnds()-now
	a.lookBy = now + every
	switch {
	case !a.wanted && !c.looksAtPace():
		return a.surplusUnwanted(c, units, quiet, now)
	case rest <= every: // they end before others can use them
		return 0
	case a.wanted && quiet < every:
		a.lookBy = a.spentAt + every
		return 0
	case a.wanted:
		return units
	case float64(quiet)*a.paced.pace >= idleUses:
		return units
	}
	surplus := a.paced.surplus(units, min(rest, algo.WindowLease*1000), now)
	if surplus > 0 {
		a.paced = pacedFor(units-surplus, now, a.LeaseEnds())
	}
	return surplus
}

// surplusUnwanted is surplusOfWindow for a long window whose units are not wanted. Units that were not used for half of
// the window go back if the window may run out: by the view, the part of its units that is left is less than the part
// of its time.
func (a *Account) surplusUnwanted(c *Conditions, units, quiet, now int64) int64 {
	if quiet < c.idleWindow() {
		a.lookBy = max(a.lookBy, a.spentAt+c.idleWindow())
		return 0
	}
	if at := a.aheadAt(c, now); c.Window.Sliding && at > now {
		a.lookBy = at // they go back with the ask for the next window
		return 0
	}
	left := float64(a.view.level) / float64(c.Window.Cap)
	if time := float64(a.view.ends-a.view.received) / 1000 / float64(c.Window.Period); left >= time {
		return 0
	}
	return units
}
