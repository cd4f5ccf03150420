package account

// Account is the protocol state of one key in one process. The zero Account knows and holds nothing. It has no pointers
// and no slices, so it can be copied and compared: AllowAll tries a call on a copy, and Inspect explains a call on a
// copy. The waiting calls of the key are kept beside it, in Waiters.
type Account struct {
	leases     [2]lease // held units; the second is the spare
	ahead      ahead    // units of the next window
	opened     place    // the window of the last lease from ahead
	askedAhead int64    // the number of the last window of which a lease was asked for before it began
	booked     booking  // units of this process in Redis's ledger
	pending    int64    // units admitted and not sent
	window     int64    // number of the window in which pending was admitted; 0: not known, or several
	earlier    refund   // units admitted in a window before that of pending, and not sent
	inflight   int64    // units sent and not answered
	sentIn     int64    // the window of inflight, as window
	untold     int64    // units of syncs that were given up since the view was received
	frozen     bool     // a sync is in flight
	asked      bool     // the sync in flight carries waiting calls: until its answer no credit is spent
	leasing    bool     // the sync in flight may bring leased units
	lone       bool     // the sync in flight only asks: see mayAskAlone
	leaving    bool     // the next sync returns all leased units: see Return
	used       bool     // the key was used under another limit, and the view that showed it is void
	resync     bool     // the next sync is sent even if nothing is owed: Redis may have lost the key
	wanted     bool     // another process was refused units of the window: see Want
	stuckAt    int64    // ns; the time from which an answer of Redis is due; 0: none is due
	view       view
	demand     demand
	refusal    Refusal  // of a direct call
	refunds    refunds  // units to be given back with the next syncs
	giving     refund   // units that the sync in flight gives back
	observed   Observed // what the next sync tells
	lowered    int64    // sub-units by which observations have lowered the view
	asking     int64    // units that direct calls are asking for
	aside      int64    // units granted to direct calls since the sync in flight was sent
	local      outage
	spentAt    int64 // ns; no leased unit was spent after it; 0: nothing is held, and Redis knows all that is spent
	lookBy     int64 // ns; the time of the next look at the leases: see giveback.go
	paced      paced
	budget     Budget
}

// Held returns the units in hand, which calls can spend. Leases that have ended count until the next Begin.
func (a *Account) Held() int64 { return a.leases[0].units + a.leases[1].units }

// Leased returns the leased units that are neither spent nor lost: those in hand, and those on their way back to Redis.
func (a *Account) Leased() int64 { return a.Held() + a.ahead.units + a.booked.over + a.booked.back }

// owed returns the units admitted that Redis has not acknowledged.
func (a *Account) owed() int64 { return a.pending + a.inflight + a.earlier.units }

// back returns the units given back that Redis has not acknowledged.
func (a *Account) back() int64 { return a.refunds.units() + a.giving.units }

// GivenBack returns the units given back that Redis has not acknowledged.
func (a *Account) GivenBack() int64 { return a.back() }

// ToldGiven reports whether Redis knows of all units that were given back up to a time (ns) and are not cancelled
// reservations, or will never know. A sync takes all of them.
func (a *Account) ToldGiven(at int64) bool { return a.back() == 0 || a.view.sent > at }

// backHere is back without the units of an earlier window, which are not there in this one.
func (a *Account) backHere(c *Conditions) int64 {
	units := a.back()
	for _, r := range [...]refund{a.refunds[0], a.refunds[1], a.giving} {
		if c.windowed() && r.at != 0 && r.at != a.view.window {
			units -= r.units
		}
	}
	return units
}

// Owed returns the admitted units that Redis has not acknowledged, also of the fallback, less those given back.
func (a *Account) Owed() int64 { return a.owed() + a.local.admitted - a.back() }

// OwedLately returns the units owed less the units given back, without the fallback's units. A denial depends on them,
// and the view does not show them.
func (a *Account) OwedLately() int64 { return a.owed() - a.back() }

// Open returns the units that Redis must still be told of: the units admitted plus the units given back.
func (a *Account) Open() int64 { return a.owed() + a.local.admitted + a.back() }

// FallbackOwed returns the units that the fallback has admitted and that are not settled.
func (a *Account) FallbackOwed() int64 { return a.local.admitted }

// returnable returns the held units that Redis takes back: of a bucket, those in its ledger, and of a window all.
func (a *Account) returnable() (units int64) {
	for _, l := range a.leases {
		if l.booked || l.window != 0 {
			units += l.units
		}
	}
	return units
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

// MustReturn returns the leased units that are lost with the account unless Redis takes them back first.
func (a *Account) MustReturn() int64 {
	return a.returnable() + a.ahead.units + a.booked.over + a.booked.back
}

// untoldInLedger returns the units that are spent and that Redis's ledger still holds.
func (a *Account) untoldInLedger() int64 {
	held, _ := a.renewable()
	return max(0, a.booked.had-a.booked.over-a.booked.back-held)
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

// OnItsWay reports whether a sync of the key is in flight.
func (a *Account) OnItsWay() bool { return a.frozen }

// MayHold reports whether units are in hand, or on their way to it. If Redis refused a direct call, these units may be
// the missing ones: a sync of another call can lease them between DirectBegin and the direct call.
func (a *Account) MayHold() bool { return a.leasing || a.Held() > 0 }

// Idle reports whether forgetting the account loses nothing but unspent leases.
func (a *Account) Idle() bool {
	return a.owed() == 0 && a.refunds.units() == 0 && a.asking == 0 && !a.frozen && a.local.admitted == 0
}

// Forgettable reports whether forgetting the account loses nothing that Redis can still get: it is idle, and returns no
// leased units first, unless Redis is away (broken).
func (a *Account) Forgettable(broken bool) bool {
	return a.Idle() && (broken || a.MustReturn() == 0)
}

// Return makes the next sync return all leased units, because the key is to be forgotten, or its limit has changed.
func (a *Account) Return() { a.leaving = a.returnable()+a.ahead.units > 0 }

// WindowEnds returns the earliest time (ns) at which the window of the view may be over; 0: not known, or no window.
func (a *Account) WindowEnds() int64 { return a.view.ends }

// ViewWindow returns the number of the window of the view; 0: not known, or no window.
func (a *Account) ViewWindow() int64 { return a.view.window }

// Unstick makes no answer of Redis due, unless a sync is in flight. Call it when Redis is not asked any more.
func (a *Account) Unstick() {
	if !a.frozen {
		a.stuckAt = 0
	}
}

// StuckFor returns the time (ns) for which an answer of Redis has been due; 0: none is due.
func (a *Account) StuckFor(now int64) int64 {
	if a.stuckAt == 0 {
		return 0
	}
	return now - a.stuckAt
}

// slotted reports whether the held units are slots. The fast path cannot spend slots, because each call must be told
// the time at which it is served.
func (a *Account) slotted() bool { return a.leases[0].units > 0 && a.leases[0].each > 0 }

// Slots reports whether the held units are slots. next is the time (ns) at which the next one is served.
func (a *Account) Slots() (next int64, ok bool) { return a.leases[0].next, a.slotted() }

// AtOnce returns the number of units, up to n, that one call can take from the held units. In a queue, the units of one
// call are served one after the other, so they come from one block.
func (a *Account) AtOnce(n int64) int64 {
	if !a.slotted() {
		return min(n, a.Held())
	}
	if l := a.leases[0].units; l < n {
		return min(n, max(l, a.leases[1].units))
	}
	return n
}

// Refusal returns the last refusal. It may be over.
func (a *Account) Refusal() Refusal { return a.refusal }

// NoteLeft notes that left units were left, and that the key is unused again at reset (ns). A refusal still holds.
func (a *Account) NoteLeft(left, reset int64) {
	if a.refusal.N == 0 {
		a.refusal.N = noRefusal
	}
	a.refusal.Left, a.refusal.Reset = left, reset
}

// NoteRefusal notes a refusal, unless a refusal of fewer units still holds.
func (a *Account) NoteRefusal(r Refusal, now int64) {
	if was := a.refusal; r.N <= was.N || !was.Holds(was.N, now) {
		a.refusal = r
	}
}

// NoteAbove notes the units that were left when a call asked for more than the burst. It does nothing if there is a
// view or a refusal that holds, because these say more.
func (a *Account) NoteAbove(r Refusal, now int64) {
	if !a.view.known() && !a.refusal.Holds(a.refusal.N, now) {
		a.refusal = r
	}
}

// Accept forgets the refusal, because units came back that it does not include.
func (a *Account) Accept() { a.refusal = Refusal{} }

// KeepDemand takes over the demand of a copy on which a call was tried.
func (a *Account) KeepDemand(trial *Account) { a.demand = trial.demand }
