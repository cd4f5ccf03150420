package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the part of the protocol that only windows have. A view and a lease end with their window.
//
// The bound of a window, Rate + (N-1)·C, does not need debits to arrive in time. The units of the process with the
// latest view are within that view, and each other process has at most C beyond its own. Units that are debited later
// count in their own window, and units of several windows in the one in which they arrive.

// closedUntil is ProvedUntil for windows: until enough units have come back, but at most until the window may be over.
func (a *Account) closedUntil(c *Conditions, n int64) int64 {
	need := (n + a.owedHere() - a.back() - a.returnable()) * c.Bucket.Unit
	est, top := a.reach(c, a.view.received)
	switch missing := need - est; {
	case need > top:
		return a.view.ends
	case missing <= 0:
		return 0
	case a.view.refill == 0:
		return a.view.ends
	default:
		return min(a.view.ends, a.view.sent+(missing+a.view.refill-1)/a.view.refill*1000)
	}
}

// fadesAt returns the time (ns) at which a sliding window that has too few units until its end has n, because its units
// fade during the next one; 0: it has them before, or is no sliding window. Before it ends nothing proves a denial in
// the next one.
func (a *Account) fadesAt(c *Conditions, n int64) int64 {
	if !c.Window.Sliding || !a.view.known() {
		return 0
	}
	_, top := a.reach(c, a.view.received)
	left := c.Window.Cap - n*c.Bucket.Unit // sub-units that may count beside n
	// At the end of the window. Units in hand are in it, because they may expire.
	used := c.Window.Cap - top + (a.owedHere()-a.back())*c.Bucket.Unit
	if used <= left || used <= 0 {
		return 0
	}
	gone := float64(used-left) / float64(used) // the part of the next window after which enough have faded
	return a.view.ends + (a.view.received - a.view.sent) + int64(math.Ceil(gone*float64(c.Window.Period)))*1000 + 1000
}

// rise returns the two bounds on the level of a window at a time: est rises with the units that have come back since
// the view, and top does not: see algo.Window.Rise.
func (a *Account) rise(c *Conditions, now int64) (est, top int64) {
	v := a.seen(c)
	v.At = max(v.At, a.view.window*c.Window.Period) // Redis's clock may be back
	est, top = c.Window.Rise(v)
	return est + (now-a.view.received)/1000*a.view.refill, top
}

// reach is rise with the units of the next window, which an ask returns if a sliding window has too few beside them.
func (a *Account) reach(c *Conditions, now int64) (est, top int64) {
	est, top = a.rise(c, now)
	if c.Window.Sliding {
		top += a.ahead.units * c.Bucket.Unit
	}
	return est, top
}

// owedHere returns the owed units that count in the view's window. Owed units of the last window take nothing from a
// fixed window, and less and less from a sliding one, so they prove no denial.
func (a *Account) owedHere() (units int64) {
	if a.window == 0 || a.window == a.view.window {
		units = a.pending
	}
	if a.sentIn == 0 || a.sentIn == a.view.window {
		units += a.inflight
	}
	return units
}

// stayAway sets the next poll of a process that a sliding window refused: the time at which one unit for each process
// of the fleet has come back. Redis gives no next poll for windows. Without stayAway, each refused call would ask
// again: under x times the permitted load, x ops per admission. With it there are at most two, because a process that
// gets its unit need not stay away.
func (a *Account) stayAway(c *Conditions) {
	if a.view.refill > 0 && c.N > 1 && a.view.level < c.N*c.Bucket.Unit {
		a.view.nextPoll = min(a.view.ends, a.view.relook, a.view.received+c.N*c.Bucket.Unit/a.view.refill*1000)
	}
}

// reclaims reports whether an op with these asks must return the units of the next window, because a sliding window has
// too few units beside them.
func (a *Account) reclaims(c *Conditions, asks []int64) bool {
	var want int64
	for _, n := range asks {
		want += n
	}
	if !c.Window.Sliding || a.ahead.units == 0 || want == 0 {
		return false
	}
	_, top := a.rise(c, a.view.received)
	return want*c.Bucket.Unit > top
}

// nextTold returns the units of the next window that were leased at the view.
func (a *Account) nextTold(c *Conditions) int64 {
	if !c.windowed() {
		return 0
	}
	return (c.Window.Cap - a.view.cap) / c.Window.Unit
}

// told returns the view as Redis gets it back.
func (a *Account) told(c *Conditions) algo.View {
	v := a.seen(c)
	v.Level += c.Floor * c.Bucket.Unit
	return v
}

// seen is told with the level above the floor.
func (a *Account) seen(c *Conditions) algo.View {
	return algo.View{
		Level: a.view.level, Prev: a.view.refill * c.Window.Tick, Next: a.nextTold(c), At: a.view.redisAt, Born: a.view.createdAt,
	}
}

// enter notes the part of an answer about its window, which ends the view. Redis gives no next poll for windows.
func (a *Account) enter(c *Conditions, ans Answer) {
	if !c.windowed() {
		return
	}
	a.view.nextPoll = 0
	// The number is that of the window that ends at that time. After a step back of Redis's clock, RedisNow may be in
	// an earlier window.
	a.view.refill, a.view.window = ans.Refill, c.Window.Number(ans.RedisNow+ans.Ends)-1
	a.view.ends = ans.Sent + ans.Ends*1000
}
