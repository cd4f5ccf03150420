package account

// This file is the part of the protocol that only windows have. A view, and a lease, die with their window.

// closedUntil is ProvedUntil for windows: until enough has come back, and until the window may be over at the latest.
func (a *Account) closedUntil(c *Conditions, n int64) int64 {
	missing := (n+a.owedHere()-a.back())*c.Bucket.Unit - a.view.level
	switch {
	case missing <= 0:
		return 0
	case a.view.refill == 0:
		return a.view.ends
	}
	return min(a.view.ends, a.view.sent+(missing+a.view.refill-1)/a.view.refill*1000)
}

// owedHere is the units that are owed and count in the view's window. Units owed of the last window take nothing from a fixed
// window, and less and less from a sliding one, so they prove no denial.
func (a *Account) owedHere() (units int64) {
	if a.window == 0 || a.window == a.view.window {
		units = a.pending
	}
	if a.sentIn == 0 || a.sentIn == a.view.window {
		units += a.inflight
	}
	return units
}

// stayAway puts off a process that a sliding window refused until a unit for each process of the fleet has come back. Redis
// keeps no turns of windows. Without this each call that it refuses would ask it again: as many ops per admission as the load
// is times the limit. With it there are two at most, since a process that gets its unit need not stay away.
func (a *Account) stayAway(c *Conditions) {
	if a.view.refill > 0 && c.N > 1 && a.view.level < c.N*c.Bucket.Unit {
		a.view.nextPoll = min(a.view.ends, a.view.received+c.N*c.Bucket.Unit/a.view.refill*1000)
	}
}

// enter notes the part of an answer that is about its window: when the view dies. Redis gives no turns.
func (a *Account) enter(c *Conditions, ans Answer) {
	if !c.windowed() {
		return
	}
	a.view.nextPoll = 0
	// The window that ends then. It is not that of RedisNow while a clock that stepped back is before it.
	a.view.refill, a.view.window = ans.Refill, c.Window.Number(ans.RedisNow+ans.Ends)-1
	a.view.ends = ans.Sent + ans.Ends*1000
}
