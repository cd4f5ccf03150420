package account

import "math"

// credit returns the number of units that may be spent on credit now (rule 1 of docs/protocol.md). If it is 0, why is
// the reason.
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
	case a.view.known():
		return 0, ViewOver
	case c.Blind && !a.used:
		level = c.Bucket.Cap
	default:
		return 0, NoView
	}
	// The view does not include the units that direct calls of this process are taking.
	there, owed := c.Bucket.Units(level)-a.asking, a.owed()+a.untold
	switch units = min(there, c.Credit) - owed; {
	case units > 0:
		return units, None
	case a.owed() >= c.Credit:
		return 0, CreditUsed
	}
	return 0, ViewTooSmall
}

// CreditLeft returns the number of units that may be spent on credit now.
func (a *Account) CreditLeft(c *Conditions, now int64) int64 {
	units, _ := a.credit(c, now)
	return units
}

// MayBeFull reports whether a key without a view may be taken for full: any use of the key that this process has
// forgotten has been refilled by now. The process may have left the key in debt, down to -Burst. From there, a bucket
// needs twice its time to full. All arguments are in ns: full is the time from empty to full, began is the time at
// which the limiter was made or its limit was replaced, and evicted is the time at which the limiter last forgot a key
// (negative: never).
func MayBeFull(full, began, evicted, now int64) bool {
	return now-began >= 2*full && (evicted < 0 || now-evicted >= 2*full)
}

// owe notes units that Redis must still count, and the window in which they were used; 0: that in which the sync
// arrives. Those of the window before are kept apart. Units of more windows count in the one in which they arrive too.
func (a *Account) owe(units, window int64) {
	if units == 0 {
		return
	}
	later := window == 0 || window > a.window
	switch {
	case a.pending == 0:
		a.window = window
	case a.window != 0 && later && a.earlier.units == 0:
		a.earlier, a.pending, a.window = refund{a.pending, a.window}, 0, window
	case a.window != window:
		a.window = 0
	}
	a.pending += units
}

// notLate reports whether units that Redis has not counted can still count: it has dropped them because the op was
// closed, and not because they came more than a window late. The answer to an op that came twice does not tell which.
// Periods of a calendar differ by less than a third.
func (a *Account) notLate(c *Conditions, ans Answer) bool {
	w := c.Window
	return w.Calendar && (a.sentIn == 0 || 3*(ans.Refill-a.sentIn)*w.Step <= 4*w.Period)
}

// oweAgain owes the units of the sync in flight once more, which Redis has not counted.
func (a *Account) oweAgain() {
	units, window := a.pending, a.window
	a.pending = 0
	a.owe(a.inflight, a.sentIn)
	a.owe(units, window)
}

// pay takes the owed units of the next op off: those of an earlier window first, in an op of their own. But Redis must
// know of all units that count beside those of waiting calls. In a sliding window, these are also units of the window
// before.
func (a *Account) pay(c *Conditions, asks []int64) (owed refund) {
	switch {
	case a.earlier.units > 0 && (len(asks) == 0 || a.pending == 0):
		owed, a.earlier = a.earlier, refund{}
		return owed
	case a.earlier.units > 0 && c.Window.Sliding:
		owed, a.earlier = refund{a.pending + a.earlier.units, 0}, refund{}
	default:
		owed = refund{a.pending, a.window}
	}
	a.pending, a.window = 0, 0
	return owed
}

// Refund gives back n units. It first takes them off the pending units, if these may be the same ones. The rest waits
// for the next syncs. soon is the urgency of these syncs.
func (a *Account) Refund(c *Conditions, n int64, taken Taken, soon Sync) (Sync, Books) {
	left := n
	if a.mayBeUnsent(taken) && (!c.windowed() || taken.At == 0 || a.window == taken.At) {
		left -= min(n, a.pending)
		a.pending -= n - left
	}
	if off := min(left, a.earlier.units); off > 0 && a.mayBeUnsent(taken) && a.earlier.at == taken.At {
		left, a.earlier.units = left-off, a.earlier.units-off
	}
	b := Books{Returned: n}
	if left > 0 {
		b.Refunded = a.refunds.add(left, taken.At, c.windowed())
	}
	if a.refunds.units() == 0 {
		return SyncNot, b
	}
	return soon, b
}

// mayBeUnsent reports whether the units may be ones that Redis has not been told of. For the units of a reservation,
// that holds until the next sync is sent. For the units of a call, it makes no difference which units of the key are
// given back.
func (a *Account) mayBeUnsent(taken Taken) bool {
	switch {
	case taken.Direct:
		return false
	case taken.Ns == 0:
		return true
	}
	return !a.frozen && (!a.view.known() || a.view.sent <= taken.Ns)
}

// unlikely is the number of calls up to which the next one is not expected.
const unlikely = 1.0 / 8

// flushAt returns the number of pending units that makes a sync urgent: K, or so many that the credit left may be spent
// before the answer to a sync is there. It is at least half of C. An adaptive K is at least the demand of the key in T,
// so that a busy key syncs once per T and not more often. While another call is not likely in that time, all of C may
// be owed: such a call waits for a round trip, and its op pays. Only a call that never waits needs a unit that is left.
func (a *Account) flushAt(c *Conditions, now int64) int64 {
	demand := a.demand.perSecond(now) / 1e9
	k := c.Every
	if c.Adaptive {
		k = max(k, int64(demand*float64(c.Interval)))
	}
	soon := demand * float64(c.lead())
	reserve := max(1, int64(math.Ceil(soon)))
	if soon < unlikely && c.MaxWait >= 0 {
		reserve = 0
	}
	return max(1, min(k, max(c.Credit/2, a.pending+a.CreditLeft(c, now)-reserve+1)))
}
