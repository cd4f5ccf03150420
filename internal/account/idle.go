package account

// This file has the looks at the leases of a bucket that tell Redis early which units are spent. The ledger keeps the
// bucket from filling up until it knows that, so a pause of the callers would cost units.

// lookSoonest is the shortest time (ns) between two looks that find nothing to tell.
const lookSoonest = int64(5e6)

// clipsAt returns the time (ns) from which on, by the view, the ledger keeps the bucket from filling up. Other
// processes may have used units, and then it is later.
func (a *Account) clipsAt(c *Conditions) int64 {
	full := float64(a.view.cap-a.view.level) * 1000 / float64(c.Bucket.Refill)
	return a.view.received + int64(max(0, min(full, float64(MaxView))))
}

// untoldInLedger returns the units that are spent and that Redis's ledger still holds.
func (a *Account) untoldInLedger() int64 {
	held, _ := a.renewable()
	return max(0, a.booked.had-a.booked.over-a.booked.back-held)
}

// worthTelling returns the number of spent units in the ledger that are worth a message of an idle process: of a fleet
// in which each process has so many, a fiftieth of the bucket.
func (c *Conditions) worthTelling() int64 { return max(1, c.Limit.BurstSize()/(50*max(1, c.N))) }

// idleSpends is the number of units that an idle process would have spent by its demand, had its calls not stopped. If
// calls come at random times, one pause in 50 is that long, and costs a message.
const idleSpends = 4

// tellsSpent reports whether the process is idle, and should tell Redis that its leases are spent: otherwise the bucket
// stops filling up.
func (a *Account) tellsSpent(c *Conditions, now int64) bool {
	quiet := now - a.spentAt
	return !c.windowed() && !a.frozen && a.lookBy > 0 && now >= a.lookBy && a.untoldInLedger() >= c.worthTelling() &&
		quiet >= c.idleFor(a.demand.perSecond(now))
}

// idleFor returns the time (ns) without a use after which a process with this demand is idle.
func (c *Conditions) idleFor(demand float64) int64 {
	return max(c.idleAfter(), int64(min(idleSpends*1e9/max(demand, 1e-3), float64(MaxView))))
}

// looksEarly reports whether the next look is only for tellsSpent: the leases do not end soon, and the key is not to be
// left.
func (a *Account) looksEarly(c *Conditions, now int64) bool {
	return !c.windowed() && !c.Closing && !a.leaving && now < a.LeaseEnds()-c.lookEarly()-c.idleAfter()
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
	a.lookBy = now + max(c.idleAfter(), now-a.view.received, lookSoonest)
	if now-a.spentAt >= c.idleAfter() { // it may be idle: its demand says for how long it must not have been used
		a.lookBy = max(now+lookSoonest, min(a.lookBy, a.spentAt+c.idleFor(a.demand.perSecond(now))))
	}
	if end := a.LeaseEnds() - c.lookEarly(); end > now {
		a.lookBy = min(a.lookBy, end)
	}
}
