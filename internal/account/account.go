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
	inflight   int64    // units sent and not answered
	sentIn     int64    // the window of inflight, as window
	untold     int64    // units of syncs that were given up since the view was received
	frozen     bool     // a sync is in flight
	asked      bool     // the sync in flight carries waiting calls: until its answer no credit is spent
	leasing    bool     // the sync in flight may bring leased units
	lone       bool     // the sync in flight only asks: see lone.go
	leaving    bool     // the next sync returns all leased units: see Return
	used       bool     // the key was used under another limit, and the view that showed it is void
	resync     bool     // the next sync is sent even if nothing is owed: Redis may have lost the key
	wanted     bool     // another process was refused units of the window: see Want
	stuckAt    int64    // ns; the time from which an answer of Redis is due; 0: none is due
	view       view
	demand     demand
	refusal    Refusal // of a direct call
	refunds    refunds // units to be given back with the next syncs
	giving     int64   // units that the sync in flight gives back
	asking     int64   // units that direct calls are asking for
	aside      int64   // units granted to direct calls since the sync in flight was sent
	local      outage
	spentAt    int64 // ns; no leased unit was spent after it; 0: nothing is held, and Redis knows all that is spent
	lookBy     int64 // ns; the time of the next look at the leases: see giveback.go and idle.go
	paced      paced
	budget     Budget
}

// Held returns the units in hand, which calls can spend. Leases that have ended count until the next Begin.
func (a *Account) Held() int64 { return a.leases[0].units + a.leases[1].units }

// Leased returns the leased units that are neither spent nor lost: the units in hand, and those on their way back to
// Redis.
func (a *Account) Leased() int64 { return a.Held() + a.ahead.units + a.booked.over + a.booked.back }

// owed returns the units admitted that Redis has not acknowledged.
func (a *Account) owed() int64 { return a.pending + a.inflight }

// back returns the units given back that Redis has not acknowledged.
func (a *Account) back() int64 { return a.refunds.units() + a.giving }

// backHere is back without the units of an earlier window, which are not there in this one.
func (a *Account) backHere(c *Conditions) int64 {
	units := a.back()
	for _, r := range a.refunds {
		if c.windowed() && r.at != 0 && r.at != a.view.window {
			units -= r.units
		}
	}
	return units
}

// Owed returns the units admitted that Redis has not acknowledged, with those of the fallback, less the units given
// back.
func (a *Account) Owed() int64 { return a.owed() + a.local.admitted - a.back() }

// Open returns the units that Redis must still be told of: the units admitted plus the units given back.
func (a *Account) Open() int64 { return a.owed() + a.local.admitted + a.back() }

// OnItsWay reports whether a sync of the key is in flight.
func (a *Account) OnItsWay() bool { return a.frozen }

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

// MayGo reports whether the key can be forgotten now without loss. It works on a copy. left is as for Begin.
func (a Account) MayGo(c *Conditions, left, now int64) bool {
	a.Begin(left, now)
	if c.Broken {
		a.Forgive(c.Fallback, now)
	}
	return a.Forgettable(c.Broken)
}

// Forget gives up the held units, the owed units and the view. A sync in flight is answered as usual.
func (a *Account) Forget() Books {
	b := Books{Expired: a.Held() + a.ahead.units + a.booked.over, Dropped: a.pending + a.local.admitted - a.refunds.units()}
	a.leases, a.booked, a.view, a.refusal = [2]lease{}, booking{back: a.booked.back}, view{}, Refusal{}
	a.pending, a.window, a.refunds, a.local, a.ahead = 0, 0, refunds{}, outage{}, ahead{}
	return b
}

// Remaining estimates the units that the fleet has left: the level of the last view, plus the held units, less the owed
// units. Of a class it is the level above the floor. A negative value is debt, or the part of the floor that is used.
func (a *Account) Remaining(c *Conditions, now int64) int64 {
	burst := c.Limit.BurstSize() - c.Floor
	left := burst
	switch {
	case a.ranOut(now):
		left = a.nextLevel(c, now)/c.Bucket.Unit + a.Held()
	case a.fresh(now):
		level := a.level(c, now)
		if c.windowed() {
			level = min(a.reach(c, now))
		}
		if left = level / c.Bucket.Unit; left*c.Bucket.Unit > level { // the division rounded a debt up
			left--
		}
		left += a.Held()
	}
	left -= a.Owed() + a.back() - a.backHere(c)
	return max(-burst-2*c.Floor, min(left, burst)) // a burst of debt is below the floor
}

// Barred returns the part of Remaining that calls of this process cannot have before its next poll: all but the held
// units.
func (a *Account) Barred(c *Conditions, now int64) int64 {
	if c.Broken || now >= a.nextPollFor(c, 1) {
		return 0
	}
	return max(0, a.Remaining(c, now)-a.Held())
}

// WindowEnds returns the earliest time (ns) at which the window of the last view may be over; 0: not known, or no
// window.
func (a *Account) WindowEnds() int64 { return a.view.ends }

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
