package account

// Compact is an account with one plain lease at most, no sync on its way, and units owed of one window at most; or the last
// refusal of a log. Most keys fit it between calls, and it takes less than half of the memory.
type Compact struct {
	units, end int64 // of the lease
	pending    int64 // as Account.pending, all of the view's window
	view       view
	demand     demand
	budget     uint64
}

// refusedBy marks a view that holds a refusal. Nothing is created before Redis's clock began.
const refusedBy = -1

// Compact is the compact form of an account. ok is false where the form loses something. A round trip verifies that it loses
// nothing, so that a field that is added to Account cannot be forgotten here.
func (a *Account) Compact() (c Compact, ok bool) {
	c = Compact{a.leases[0].units, a.leases[0].end, a.pending, a.view, a.demand, a.budget.Pack(0)}
	if r := a.refusal; r.N > 0 && a.view == (view{}) {
		c.view = view{level: r.N, nextPoll: r.Until, relook: r.Relook, cap: r.Left, ends: r.Reset, createdAt: refusedBy}
	}
	return c, c.Expand() == *a
}

// Expand is the account of a compact form.
func (c *Compact) Expand() (a Account) {
	a.leases[0].units, a.leases[0].end, a.pending = c.units, c.end, c.pending
	a.view, a.demand, a.budget = c.view, c.demand, Unpack(c.budget)
	if v := c.view; v.createdAt == refusedBy {
		a.view = view{}
		a.refusal = Refusal{N: v.level, Until: v.nextPoll, Relook: v.relook, Left: v.cap, Reset: v.ends}
	}
	if a.pending > 0 && a.view.known {
		a.window = a.view.window
	}
	return a
}

// Owed is Account.Owed.
func (c *Compact) Owed() int64 { return c.pending }

// Held is Account.Held at a time.
func (c *Compact) Held(now int64) int64 {
	if now >= c.end {
		return 0
	}
	return c.units
}
