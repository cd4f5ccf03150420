package account

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
