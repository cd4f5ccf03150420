package account

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Send returns the next op of the key. It carries the owed units, the refunds, the costs of waiting calls and the
// demand for a lease. ok is false if there is nothing to send. Before Send, call Waiters.Front, Adapt to the plan that
// it returns, and Begin. p is the key's plan.
func (a *Account) Send(c *Conditions, p *Plan, ws *Waiters, now int64) (op algo.Op, b Books, ok bool) {
	if c.Closing { // the op only pays
		ws.carried = 0
	}
	owed, again := a.owed()+a.local.admitted, a.resync
	op, ok = a.freeze(c, ws.asks(), now)
	b.Forgiven = owed - a.owed() - a.local.admitted
	ws.sent = p
	switch {
	case !ok:
		ws.carried = 0
	case again:
		b.Resynced = 1
	}
	op.Since, op.Floor, op.Upper = p.InForce(now), p.Floor, p.Upper
	return op, b, ok
}

// cause is a set of reasons for which a sync is sent.
type cause uint8

const (
	forOwed    cause = 1 << iota // units are owed or given back, or calls wait
	forLoss                      // Redis may have lost the key, and the view may restore it
	forSpent                     // the process is idle: Redis hears which leased units are spent
	forReturn                    // leased units go back
	forRenewal                   // the leased units that stay must be renewed now
	forLease                     // more leased units are worth a sync
	forNext                      // leased units of the next window are worth a sync
	forUse                       // another party has counted use of which Redis does not know
)

// causes returns the reasons for which a sync is sent now, and the returnable units that go back with it.
func (a *Account) causes(c *Conditions, asks []int64, wanting, leaving bool, now int64) (why cause, surplus int64) {
	note := func(is bool, reason cause) {
		if is {
			why |= reason
		}
	}
	note(a.pending+a.earlier.units != 0 || a.refunds.units() != 0 || len(asks) > 0, forOwed)
	note(a.resync && a.Tells(c.Bucket, c.Lost), forLoss)
	note(a.tellsSpent(c, now), forSpent)
	note(a.tellsUse(now), forUse)
	surplus, due := a.surplus(c, wanting, now)
	if why&forSpent != 0 { // it is idle
		surplus = a.returnable()
	}
	note(due, forRenewal)
	looks := why&(forOwed|forSpent|forUse) == 0 && a.onlyLooks(c, now)
	if looks {
		surplus = 0
	}
	if !wanting && !leaving && a.wantsAhead(c, now) {
		why |= forNext
		surplus = max(surplus, a.spareHere(c, now))
	}
	note(surplus+a.booked.over > 0 || leaving && a.ahead.units > 0, forReturn)
	note(!looks && why&forSpent == 0 && a.worthLease(c, now), forLease)
	return why, surplus
}

// freeze is Send without the Waiters. asks is the costs of the waiting calls that the op carries.
func (a *Account) freeze(c *Conditions, asks []int64, now int64) (op algo.Op, ok bool) {
	if owed := a.local.settle(&c.Fallback, now); owed > 0 {
		a.pending, a.window = a.pending+owed, 0
	}
	// A call that waits while the process holds units needs more than these. They go back with the op, so that one
	// place has all units: otherwise Redis might never have enough for the call.
	wanting, leaving := len(asks) > 0 && a.Held() > 0, a.leaving || c.Closing
	why, surplus := a.causes(c, asks, wanting, leaving, now)
	a.resync, a.leaving = false, a.leaving && surplus > 0 && a.ahead.units > 0
	if why == 0 {
		a.lookLater(c, now)
		a.stuckAt = 0 // the waiting calls have left
		return algo.Op{}, false
	}
	plain := why&(forLoss|forLease|forNext|forUse) == 0
	a.lone = plain && a.mayAskAlone(c, asks, now)
	switch {
	case a.lone:
		op.Asks = asks
	case plain && a.mayPayAlone(c, asks, now):
		op.Div = 2 * c.N
	default:
		plain = false
		op = a.whole(c, asks, why, surplus, wanting, leaving, now)
	}
	if plain && a.telling(c, now) {
		op.View = a.told(c)
	}
	owed := a.pay(c, asks)
	op.Owed, op.Win = owed.units, owed.at
	a.inflight, a.sentIn, a.giving, a.aside = owed.units, owed.at, refund{op.Refund, op.RefundAt}, 0
	a.frozen, a.asked, a.leasing = true, len(asks) > 0, op.Demand > 0 && !op.Ahead
	if a.stuckAt == 0 {
		a.stuckAt = now
	}
	return op, true
}

// whole returns an op that is not plain, without the owed units. The arguments are those of freeze and the results of
// causes.
func (a *Account) whole(
	c *Conditions, asks []int64, why cause, surplus int64, wanting, leaving bool, now int64,
) (op algo.Op) {
	back, window := a.giveBack(surplus, leaving || a.reclaims(c, asks))
	op = algo.Op{Asks: asks, Gen: max(a.booked.gen, window), Had: a.booked.had, Back: back}
	a.booked.kept, a.booked.back = 0, back
	if a.booked.gen != 0 {
		a.booked.kept, _ = a.renewable()
		op.Keep = a.booked.kept
	}
	op.Used, op.UsedBy = a.takeUse(c)
	given := a.refunds.take()
	op.Refund, op.RefundAt = given.units, given.at
	// A sync that only tells a view, or only returns units, takes no lease. If it tells a view, Redis may not know yet
	// what other processes used. But units of a window can go back with an ask for the next one.
	next := why&forNext != 0
	idle := a.pending+a.earlier.units == 0 && len(asks) == 0 &&
		(why&forLoss != 0 || back > 0 && !next || why&(forLease|forNext) == 0)
	if !c.Closing && !idle { // otherwise a next poll would be wasted too
		op.Div = 2 * c.N
		op.MaxLife = c.MaxLife
		op.Queued = !c.windowed() && a.view.known() && a.view.nextPoll > a.view.received
	}
	// A booking that waits for this op (an ask of 0) asks Redis directly for all its units. A lease would be missing
	// there.
	booking := slices.Contains(asks, 0)
	if (next || back == 0 && a.takesLease(c, now)) && !idle && !wanting && !booking {
		op.Demand = int64(min(a.leaseDemand(c, now)*1000, MaxCharge))
		if op.Ahead = next; next {
			a.askedAhead = a.here(now).window + 1
		}
	}
	if a.view.known() {
		op.View = a.told(c)
		op.Lost = c.Lost > 0 && a.view.received <= c.Lost
	}
	return op
}

// There are two plain ops: the lone ask, which only asks for the units of waiting calls, and the payment, which only
// tells owed units. Both may tell a view. They want neither a lease nor a next poll. Redis decides them at a fraction
// of the cost of other ops. The first message with lone asks has no envelope: if Redis applies such an op twice, units
// are lost, but none is admitted twice.

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
	case a.view.known() && a.hopes(c) && now-a.view.received < a.view.ledgerMemory(): // other processes hold units, so an ask may be refused
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

// mayPayAlone reports whether the next op may be a payment. Owed units of a window need their window. A payment that
// would leave little needs a next poll, and with it the demand.
func (a *Account) mayPayAlone(c *Conditions, asks []int64, now int64) bool {
	return len(asks) == 0 && a.pending > 0 && a.pending*c.Bucket.Unit < c.Bucket.Cap/4 && !c.windowed() && a.mayBePlain(c, now)
}
