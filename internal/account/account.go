package account

// Account is what a process knows and holds of one key. The zero Account knows nothing. It has no pointers and no slices, so
// that it can be copied and compared: AllowAll tries a call on a copy, and Inspect explains one. The calls that wait for Redis
// stand beside it, in Waiters.
type Account struct {
	leases   [2]lease // units in hand; the second is the spare
	booked   booking  // what Redis's ledger holds for this process
	pending  int64    // units admitted and not sent
	window   int64    // number of the window in which they were admitted; 0: not known, or several
	inflight int64    // units sent and not answered
	sentIn   int64    // their window, as window
	untold   int64    // units of syncs that were given up since the view came
	frozen   bool     // a sync is on its way
	asked    bool     // it carries asks: until its answer no credit is spent
	stuckAt  int64    // ns; since when Redis has owed an answer; 0: it owes none
	view     view
	demand   demand
	refusal  Refusal // of a direct call
	refunds  refunds // units to be given back with the next syncs
	giving   int64   // units that the sync on its way gives back
	asking   int64   // units that direct calls are asking for
	aside    int64   // units that direct calls got since the sync on its way left
	local    fallbackBucket
	budget   Budget
	used     bool // the key was used under another limit, and the view that showed it is void
	resync   bool // the next sync goes out even if nothing is owed: Redis may have lost the key
}

// Held is the units in hand. Leases that are over count until the next Begin.
func (a *Account) Held() int64 { return a.leases[0].units + a.leases[1].units }

// owed is the units admitted that Redis has not acknowledged.
func (a *Account) owed() int64 { return a.pending + a.inflight }

// back is the units given back that Redis has not acknowledged.
func (a *Account) back() int64 { return a.refunds.units() + a.giving }

// Owed is the units admitted that Redis has not acknowledged, those of the fallback included, less those given back.
func (a *Account) Owed() int64 { return a.owed() + a.local.admitted - a.back() }

// Open is the units of which Redis has still to hear: admitted and given back, both counted up.
func (a *Account) Open() int64 { return a.owed() + a.local.admitted + a.back() }

// OnItsWay reports whether a sync of the key has left and is not answered.
func (a *Account) OnItsWay() bool { return a.frozen }

// Idle reports whether forgetting the account loses nothing but unspent leases.
func (a *Account) Idle() bool {
	return a.owed() == 0 && a.refunds.units() == 0 && a.asking == 0 && !a.frozen && a.local.admitted == 0
}

// MayGo reports whether the key could be forgotten now without loss. It tries that on a copy. left is as for Begin.
func (a Account) MayGo(c *Conditions, left, now int64) bool {
	a.Begin(left, now)
	if c.Broken {
		a.Forgive(c.Fallback, now)
	}
	return a.Idle()
}

// Forget gives up all that the account holds and owes, and what it knows. A sync on its way is answered as usual.
func (a *Account) Forget() Books {
	b := Books{Expired: a.Held(), Dropped: a.pending + a.local.admitted - a.refunds.units()}
	a.leases, a.booked, a.view, a.refusal = [2]lease{}, booking{}, view{}, Refusal{}
	a.pending, a.window, a.refunds, a.local = 0, 0, refunds{}, fallbackBucket{}
	return b
}

// Remaining estimates the fleet's units: the level of the last view, and what is in hand, less what Redis has not heard of.
// Negative is debt, down to a burst.
func (a *Account) Remaining(c *Conditions, now int64) int64 {
	burst := c.Limit.BurstSize()
	left := burst
	if a.fresh(now) {
		level := a.level(c, now)
		if left = level / c.Bucket.Unit; left*c.Bucket.Unit > level { // rounded up
			left--
		}
		left += a.Held()
	}
	left -= a.Owed()
	return max(-burst, min(left, burst))
}

// WindowEnds is when (ns) the window of the last view may be over; 0: not known, or no window.
func (a *Account) WindowEnds() int64 { return a.view.ends }

// Unstick forgets since when Redis has owed an answer, where nothing is on its way: Redis is not to be asked any more.
func (a *Account) Unstick() {
	if !a.frozen {
		a.stuckAt = 0
	}
}

// StuckFor is for how long (ns) Redis has owed an answer; 0: it owes none.
func (a *Account) StuckFor(now int64) int64 {
	if a.stuckAt == 0 {
		return 0
	}
	return now - a.stuckAt
}
