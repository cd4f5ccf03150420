package account

// credit is how many units may be spent on credit now (rule 1 of docs/protocol.md), and where none may, why.
func (a *Account) credit(c *Conditions, now int64) (units int64, why Reason) {
	switch {
	case a.asked:
		return 0, AnswerDue
	case a.local.admitted > 0:
		return 0, LocalUnsaid
	case c.Credit <= 0:
		return 0, NoCredit
	}
	var level int64
	switch {
	case a.fresh(now):
		level = a.level(c, now)
	case a.view.known:
		return 0, ViewOver
	case c.Blind && !a.used:
		level = c.Bucket.Cap
	default:
		return 0, NoView
	}
	// The view does not know of the units that direct calls of this process take.
	there, owed := c.Bucket.Units(level)-a.asking, a.owed()+a.untold
	switch units = min(there, c.Credit) - owed; {
	case units > 0:
		return units, None
	case a.owed() >= c.Credit:
		return 0, CreditUsed
	}
	return 0, ViewTooSmall
}

// CreditLeft is credit without the reason.
func (a *Account) CreditLeft(c *Conditions, now int64) int64 {
	units, _ := a.credit(c, now)
	return units
}

// MayBeFull reports whether a key without a view may be taken for full: all that this process once did with it, and has
// forgotten, is over by now. The process may have left the key in debt, down to -Burst, from which a bucket needs twice its
// time to full. full is that time, began is when the limiter was made or its limit replaced, evicted is when it last forgot a
// key (negative: never), all in ns.
func MayBeFull(full, began, evicted, now int64) bool {
	return now-began >= 2*full && (evicted < 0 || now-evicted >= 2*full)
}

// owe admits units on credit. They count in the window of the view on which they were admitted; units of several windows
// count where they arrive.
func (a *Account) owe(units int64) {
	if units == 0 {
		return
	}
	window := int64(0)
	if a.view.known {
		window = a.view.window
	}
	if a.pending == 0 {
		a.window = window
	} else if a.window != window {
		a.window = 0
	}
	a.pending += units
}

// flushAt is how many pending units make a sync urgent: K, or half of the credit, so that the answer is back before the rest
// is spent. An adaptive K is what the key uses in T, so that a busy key syncs once per T and not more.
func (a *Account) flushAt(c *Conditions, now int64) int64 {
	k := c.Every
	if c.Adaptive {
		k = max(k, int64(a.demand.perSecond(now)*float64(c.Interval)/1e9))
	}
	return max(1, min(k, c.Credit/2))
}
