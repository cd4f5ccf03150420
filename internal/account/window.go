package account

// This file has the part of the protocol that only windows have. A view and a lease end with their window.

// closedUntil is ProvedUntil for windows: until enough units have come back, but at most until the window may be over.
func (a *Account) closedUntil(c *Conditions, n int64) int64 {
	missing := (n+a.owedHere()-a.back()-a.returnable())*c.Bucket.Unit - a.view.level
	switch {
	case missing <= 0:
		return 0
	case a.view.refill == 0:
		return a.view.ends
	}
	return min(a.view.ends, a.view.sent+(missing+a.view.refill-1)/a.view.refill*1000)
}

// owedHere returns the owed units that count in the view's window. Owed units of the last window take nothing from a fixed
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

// stayAway sets the next poll of a process that a sliding window refused: the time at which one unit for each process of the
// fleet has come back. Redis gives no next poll for windows. Without stayAway, each refused call would ask again: under x times
// the permitted load, x ops per admission. With it there are at most two, because a process that gets its unit need not stay
// away.
func (a *Account) stayAway(c *Conditions) {
	if a.view.refill > 0 && c.N > 1 && a.view.level < c.N*c.Bucket.Unit {
		a.view.nextPoll = min(a.view.ends, a.view.relook, a.view.received+c.N*c.Bucket.Unit/a.view.refill*1000)
	}
}

// enter notes the part of an answer about its window, which ends the view. Redis gives no next poll for windows.
func (a *Account) enter(c *Conditions, ans Answer) {
	if !c.windowed() {
		return
	}
	a.view.nextPoll = 0
	// The number is that of the window that ends at that time. After a step back of Redis's clock, RedisNow may be in an
	// earlier window.
	a.view.refill, a.view.window = ans.Refill, c.Window.Number(ans.RedisNow+ans.Ends)-1
	a.view.ends = ans.Sent + ans.Ends*1000
}
