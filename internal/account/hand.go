package account

import "github.com/hybridlimit/hybridlimit"

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
	if a.leases[0].window != 0 || a.leases[0].booked {
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

// hand admits a call for n held units, which AtOnce has found.
func (a *Account) hand(n, now int64) Verdict {
	v := Verdict{Action: Admit, Source: hybridlimit.SourceLease, Reason: InHand}
	if !a.slotted() {
		a.use(n, now)
		return v
	}
	for i := range a.leases {
		if l := &a.leases[i]; l.units >= n {
			v.Delay = l.take(n, now)
			break
		}
	}
	a.close()
	return v
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
	if !a.frozen && a.booked != (booking{}) && now-a.view.received > a.view.ledgerMemory() {
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

// open puts the lease of the next window into the hand after that window has begun. It returns the units that are lost:
// the window is over.
func (a *Account) open(now int64) (lost int64) {
	next := a.ahead
	if next.units == 0 && !a.frozen && now >= max(a.view.ends, a.opened.ends) {
		a.opened, a.askedAhead = place{}, 0 // so that the account fits its compact form
	}
	if next.units == 0 || now < next.begin {
		return 0
	}
	a.ahead = ahead{}
	if now >= next.end {
		a.leaving = a.leaving && a.Held() > 0
		return next.units
	}
	a.opened = place{a.askedAhead, next.end}
	a.spentAt, a.lookBy, a.wanted, a.paced = max(a.spentAt, next.begin), next.begin, false, pacedFor(next.units, next.begin, next.end)
	return a.keep(lease{units: next.units, end: next.end, window: a.askedAhead})
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

// keepAhead books a lease of a window that is not the answer's: the next one, or, in the answer to a batch that was
// sent again, the current one. The lease begins when that window has begun for certain, and ends before it may be over.
// It returns the units that are lost.
func (a *Account) keepAhead(c *Conditions, ans Answer, now int64) (lost int64) {
	lasts := func(win int64) int64 { // ns; the process may be in a later window by now, of another length
		begin := c.Window.Begin(win)
		return (c.Window.Ends(begin) - begin) * 1000
	}
	period := lasts(a.view.window)
	// Credit that was spent while the answer was on its way counts in this window. Redis has leased the units beside a
	// count without it (rules 3 and 33), so as many are not used.
	var net int64
	if c.Window.Sliding {
		net = min(ans.Lease, a.pending)
	}
	lost = a.ahead.units + net // the first, if Redis's clock stepped back
	a.ahead = ahead{
		units: ans.Lease - net,
		begin: now + ans.Ends*1000 - period,
		end:   ans.Sent + ans.Ends*1000 - 2*c.Tick,
	}
	switch {
	case ans.Gen > a.view.window:
		a.ahead.begin, a.ahead.end = a.ahead.begin+period, a.ahead.end+lasts(ans.Gen)
	case ans.Gen < a.view.window: // it is over
		a.ahead.begin, a.ahead.end = a.ahead.begin-lasts(ans.Gen), a.ahead.end-period
	}
	a.askedAhead = ans.Gen
	return lost
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
