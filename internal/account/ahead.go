package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the leases of the next window. Without them, each process would wait for Redis at the begin of each
// window. Redis decides their size: internal/algo/window_lease.go.

// ahead is a lease of the next window. Its units cannot be spent before that begins. The number of the window is
// Account.askedAhead.
type ahead struct {
	units int64
	begin int64 // ns; the latest time at which the window may begin
	end   int64 // ns; from then on the units must not be spent
}

// place is a window of Redis's clock, as far as this process knows it.
type place struct {
	window int64 // its number; 0: not known
	ends   int64 // ns; the earliest time at which it may be over
}

// here returns the current window: that of the view or, while the process lives on a lease from before, that of the
// lease.
func (a *Account) here(now int64) place {
	switch {
	case a.ranOut(now):
		return a.opened
	case a.view.ends != 0 && a.fresh(now):
		return place{a.view.window, a.view.ends}
	}
	return place{}
}

// aheadSpan is the longest time (ns) before the end of a window at which a lease of the next one is taken.
const aheadSpan = int64(1e9)

// aheadAt returns the time (ns) at which a sync must be sent for a lease of the next window; 0: at no time. It is in
// the last quarter of the window, at another moment in each process: otherwise all processes would ask at once.
func (a *Account) aheadAt(c *Conditions, now int64) int64 {
	if !c.windowed() || !c.hasLeases() || c.Broken || a.frozen || c.Window.Period < algo.AheadPeriod {
		return 0
	}
	h := a.here(now)
	if a.ahead.units > 0 { // there may be no sync in that window before
		h = place{a.askedAhead, a.ahead.end}
	}
	if h.window == 0 || a.askedAhead > h.window { // it was asked for
		return 0
	}
	// The lease must be worth a sync: see worthLease.
	if a.demand.steady(now)*float64(min(c.Window.Period, algo.WindowLease)) < leasable*1e6 {
		return 0
	}
	span := min(c.Window.Period*1000/4, aheadSpan)
	const parts = 1009
	at := h.ends - span + span*3/4*(a.view.redisAt%parts)/parts/1e6*1e6
	if a.ahead.units > 0 { // after a late answer its end is early, but before its begin the sync would be for the same window
		at = max(at, a.ahead.begin)
	}
	return at
}

// wantsAhead reports whether a sync at now should ask for a lease of the next window.
func (a *Account) wantsAhead(c *Conditions, now int64) bool {
	at := a.aheadAt(c, now)
	return at > 0 && now >= at
}

// spareHere returns the units of a sliding window that the process will hardly need until it ends. They go back with
// the ask for units of the next window: the two windows share one limit, so each of them makes room there.
func (a *Account) spareHere(c *Conditions, now int64) int64 {
	if !c.Window.Sliding {
		return 0
	}
	mu := a.demand.perSecond(now) * float64(max(a.here(now).ends-now, 0)) / 1e9
	return max(0, a.returnable()-int64(math.Ceil(mu+math.Sqrt(mu))))
}

// keepAhead books a lease of a window that is not the answer's: the next one, or, in the answer to a batch that was
// sent again, the current one. The lease begins when that window has begun for certain, and ends before it may be over.
// It returns the units that are lost.
func (a *Account) keepAhead(c *Conditions, ans Answer, now int64) (lost int64) {
	period, later := c.Window.Period*1000, ans.Gen-a.view.window
	// Credit that was spent while the answer was on its way counts in this window. Redis has leased the units beside a
	// count without it (rules 3 and 33), so as many are not used.
	var net int64
	if c.Window.Sliding {
		net = min(ans.Lease, a.pending)
	}
	lost = a.ahead.units + net // the first, if Redis's clock stepped back
	a.ahead = ahead{
		units: ans.Lease - net,
		begin: now + ans.Ends*1000 + (later-1)*period,
		end:   ans.Sent + ans.Ends*1000 + later*period - 2*c.Tick,
	}
	a.askedAhead = ans.Gen
	return lost
}

// open puts the lease of the next window into the hand after that window has begun. It returns the units that are lost,
// because the window is over.
func (a *Account) open(now int64) (lost int64) {
	next := a.ahead
	if next.units == 0 && !a.frozen && now >= max(a.view.ends, a.opened.ends) {
		a.opened, a.askedAhead = place{}, 0 // so that the account fits its compact form
	}
	if next.units == 0 || now < next.begin {
		return 0
	}
	a.ahead = ahead{}
	if now >= next.end {
		a.leaving = a.leaving && a.Held() > 0
		return next.units
	}
	a.opened = place{a.askedAhead, next.end}
	a.spentAt, a.lookBy, a.wanted, a.paced = max(a.spentAt, next.begin), next.begin, false, pacedFor(next.units, next.begin, next.end)
	return a.keep(lease{units: next.units, end: next.end, window: a.askedAhead})
}

// ranOut reports whether the process lived on a lease from before the window and has no view of it yet.
func (a *Account) ranOut(now int64) bool {
	return a.view.ends != 0 && !a.fresh(now) && now < a.opened.ends
}

// nextLevel returns the level of the window after that of the view, by the view: what it began with, and of a sliding
// window what has come back since. Other processes may have used units.
func (a *Account) nextLevel(c *Conditions, now int64) int64 {
	w := c.Window
	if !w.Sliding {
		return a.view.cap
	}
	_, top := a.rise(c, a.view.received)
	cur := (a.view.cap - top) / w.Unit // top is cap less the units of the view's window
	left := max(0, w.Unit-(now-a.view.ends)/1000/w.Tick)
	return max(0, a.view.cap-cur*left)
}
