package account

// Begin is the first step of each event. It takes back the budget and drops leases that have ended. left is the number
// of units still in the budget; for a DenyBudget, it is the number of denied units. Begin returns the units that the
// fast path spent or denied, and the number of leased units that ended unspent.
func (a *Account) Begin(left, now int64) (spent Budget, expired int64) {
	spent = a.drain(left, now)
	expired = a.expire(now)
	return spent, expired + a.open(now)
}

func (a *Account) drain(left, now int64) Budget {
	b := a.budget
	a.budget = Budget{}
	units := b.Units - left
	switch b.Kind {
	case NoBudget:
		return Budget{}
	case LeaseBudget:
		a.use(units, now)
	case CreditBudget:
		a.owe(units, a.view.window)
	case DenyBudget:
		units = left
	}
	a.demand.spread(units, now)
	return Budget{b.Kind, units}
}

// Load is the last step of each event. It chooses the next budget of the fast path and its expiry until (ns). The fast
// path may spend the budget for two ticks after until, or after now if that is later: an epoch lasts one tick, and the
// next tick may be one tick late. The last ticks of a denial are left to the slow path, whose RetryAfter is exact.
// Every other change of the spendable units is an event of the key, which takes the budget back, or voids the budgets
// of all keys.
func (a *Account) Load(c *Conditions, now int64) (b Budget, until int64) {
	if c.Broken { // leases only
		if held := a.Held(); held > 0 && !a.slotted() {
			a.budget = Budget{LeaseBudget, min(held, MaxUnits)}
		}
		return a.budget, a.LeaseEnds()
	}
	until = now + Ticks*c.Tick
	if c.Window.Sliding {
		until = now + c.Interval // the estimate beside the budget does not include units that come back
	}
	a.demand.decay(now) // the calls on the budget are spread over the time from now on
	switch held := a.Held(); {
	case a.slotted():
	case held > 0:
		until = min(until, a.looksAgain(now))
		units := held
		if !a.frozen && a.leases[1].units == 0 {
			// The budget ends early, so that the slow path prefetches, or at least takes the last unit.
			if low := max(1, a.prefetchAt(c, now)); low < held {
				units = held - low
			} else if low == 1 && c.hasLeases() {
				units = 0
			}
		}
		a.budget = Budget{LeaseBudget, min(units, MaxUnits)}
	case now+2*c.Tick < a.DeniedUntil(c):
		a.budget, until = Budget{Kind: DenyBudget}, min(until, max(now, a.DeniedUntil(c)-3*c.Tick))
		if a.ahead.units > 0 {
			until = min(until, a.ahead.begin)
		}
	case a.pending > 0 && (!c.windowed() || now+2*c.Tick <= a.view.ends): // the units count in the view's window
		// A unit is pending, so a sync is queued. It will carry the units that are spent from now on. The unit that
		// makes this sync urgent is left to the slow path.
		units := a.CreditLeft(c, now)
		if more := a.flushAt(c, now) - a.pending; more > 0 {
			units = min(units, more-1)
		}
		a.budget = Budget{CreditBudget, min(units, MaxUnits)}
		if a.view.ends != 0 {
			until = min(until, a.view.ends-2*c.Tick)
		}
	}
	if a.budget.Kind != DenyBudget && a.budget.Units <= 0 {
		a.budget = Budget{}
	}
	return a.budget, until
}

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
	b := Books{
		Expired: a.Held() + a.ahead.units + a.booked.over,
		Dropped: a.pending + a.earlier.units + a.local.admitted - a.refunds.units(),
	}
	a.observed, a.lowered = Observed{}, 0
	a.leases, a.booked, a.view, a.refusal = [2]lease{}, booking{back: a.booked.back}, view{}, Refusal{}
	a.pending, a.window, a.earlier, a.refunds, a.local, a.ahead = 0, 0, refund{}, refunds{}, outage{}, ahead{}
	return b
}

// exactLevel is the largest distance of a level from 0: Lua counts a level in a float64.
const exactLevel = 1 << 52

// Adapt gives the key another plan, of a limit that counts. Call Begin before it. Used units stay used. As in Redis,
// the level refills at the old rate until the time at which the new limit came into force. Adapt returns the leased
// units that are lost.
func (a *Account) Adapt(old, p *Plan, now int64) (lost int64) {
	if old.Limit == p.Limit {
		return 0
	}
	a.refusal = Refusal{}
	a.forgetUse() // of the old limit
	if !anotherCount(old, p) && p.Burst < old.Burst {
		a.recall()
	}
	a.Return()
	v := &a.view
	if anotherCount(old, p) {
		here := a.here(now).window
		*v, a.used = view{}, true // of another window
		a.pending, a.window, a.earlier = a.pending+a.earlier.units, 0, refund{}
		if !sameWindows(old, p) {
			lost = a.refunds.move(here)
		}
		return lost + a.leaveLimit(old, p)
	}
	from := max(v.received, p.Began)
	if p.Began == 0 || p.From == FromCall {
		from = max(v.received, now)
	}
	passed := (from - v.received) / 1000
	was := old.Bucket
	if from-v.received < v.ledgerMemory() {
		was.Cap = v.cap
	}
	if passed > exactLevel/p.Bucket.Refill { // too long for an exact level
		*v, a.used = view{}, true
		return 0
	}
	v.level, v.cap = p.convert(was.Fill(v.level, passed)+old.Low(), old), p.convert(v.cap+old.Low(), old)
	v.nextPoll, v.relook = 0, 0         // the view's proofs are about the old limit
	v.level -= passed * p.Bucket.Refill // level() adds this refill again, at the new rate
	return 0
}

// recall takes the units of the ledger out of the hand, after the burst was lowered. They go back with the next sync:
// Redis cuts the level to the new burst, so they would come on top of it.
func (a *Account) recall() {
	for i := range a.leases {
		if l := &a.leases[i]; l.booked {
			a.booked.over += l.units
			*l = lease{}
		}
	}
	a.close()
}

// leaveLimit takes the leases out of the hand that the new limit may have no room for: those of a window, unless its
// limit is raised. Redis gets them back if it goes on to count in the same windows. leaveLimit returns the leased units
// that are lost. Redis cuts the count of this window at two Rates of the new limit. Units that came off it then would
// be admitted again, so they are lost.
func (a *Account) leaveLimit(old, p *Plan) (lost int64) {
	same := sameWindows(old, p)
	if old.Window.Period == 0 || same && p.Limit.Rate >= old.Limit.Rate {
		return a.disown()
	}
	leased := append(a.leases[:], lease{units: a.ahead.units, window: a.askedAhead})
	a.leases, a.ahead = [2]lease{}, ahead{}
	cut := old.Limit.Rate > 2*p.Limit.Rate
	for i, l := range leased {
		next := i == len(a.leases)
		switch {
		case l.units == 0:
		case same && l.window != 0 && (next || !cut):
			lost += a.refunds.add(l.units, l.window, true)
		default:
			lost += l.units
		}
	}
	return lost + a.disown()
}

// Compact is the compact form of an account that has at most one lease, neither of slots nor of the ledger, no sync in
// flight, and owed units of at most one window. It can also hold the last refusal of a log. Most keys fit it between
// calls. It takes less than half of the memory.
type Compact struct {
	units, end int64 // of the lease
	pending    int64 // as Account.pending, all in the view's window
	view       view
	demand     demand
	budget     uint64
}

// refusedBy in createdAt marks a view that holds a refusal. A state's "created at" is never negative.
const refusedBy = -1

// Compact returns the compact form of an account. ok is false if the form loses something. A round trip verifies that
// it loses nothing, so that a new field of Account cannot be forgotten here.
func (a *Account) Compact() (c Compact, ok bool) {
	c = Compact{a.leases[0].units, a.leases[0].end, a.pending, a.view, a.demand, a.budget.Pack(0)}
	if r := a.refusal; r.N > 0 && a.view == (view{}) {
		c.view = view{level: r.N, nextPoll: r.Until, relook: r.Relook, cap: r.Left, ends: r.Reset, createdAt: refusedBy}
	}
	var back Account
	c.Expand(&back)
	return c, back == *a
}

// Expand sets a zero account to the account of a compact form.
func (c *Compact) Expand(a *Account) {
	a.leases[0].units, a.leases[0].end, a.pending = c.units, c.end, c.pending
	a.view, a.demand, a.budget = c.view, c.demand, Unpack(c.budget)
	if v := c.view; v.createdAt == refusedBy {
		a.view = view{}
		a.refusal = Refusal{N: v.level, Until: v.nextPoll, Relook: v.relook, Left: v.cap, Reset: v.ends}
	}
	if a.pending > 0 && a.view.known() {
		a.window = a.view.window
	}
}

// Empty reports whether the account neither owes nor holds a unit. Forgetting it then loses nothing.
func (c *Compact) Empty() bool { return c.pending == 0 && c.units == 0 }

// Forget forgets an empty account. left is as for Account.Begin. It returns the units that the fast path denied.
func (c *Compact) Forget(left int64) (denied int64) {
	if KindOf(c.budget) == DenyBudget {
		denied = left
	}
	*c = Compact{}
	return denied
}

// Owed is as Account.Owed.
func (c *Compact) Owed() int64 { return c.pending }

// Held returns the held units at now. Unlike Account.Held, it does not count a lease that has ended.
func (c *Compact) Held(now int64) int64 {
	if now >= c.end {
		return 0
	}
	return c.units
}
