package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// ProvedUntil returns the time (ns) until which the view proves that n units do not exist. Since Redis answered, the
// level has grown by at most the refill, which counts from the sending of the op. Owed units are subtracted first, down
// to -Cap, the lowest level in Redis. Units given back are added. 0: the view proves nothing.
func (a *Account) ProvedUntil(c *Conditions, n int64) int64 {
	if !a.view.known() {
		return 0
	}
	if c.windowed() {
		return a.closedUntil(c, n)
	}
	return a.proved(c, c.Bucket, a.view.level, n)
}

// proved is ProvedUntil for a given bucket and level. The bucket may differ from the key's present one. While other
// processes hold units that they can return, the view proves nothing after relook.
func (a *Account) proved(c *Conditions, b algo.Bucket, level, n int64) int64 {
	after := float64(level) - float64(a.owed()-a.back()-a.MustReturn())*float64(b.Unit) // an ask returns the units in hand
	least := -float64(b.Cap) - 2*float64(c.Floor)*float64(b.Unit)                       // a burst of debt, above the floor
	until := a.view.sent + b.Wait(int64(max(least, min(after, float64(b.Cap)))), n)*1000
	if a.hopes(c) {
		until = min(until, max(a.view.relook, a.view.sent))
	}
	return until
}

// RetryAt returns the time (ns) at which a call for n units is admitted if no other call comes: after the proof and the
// next poll. A proof counts from the sending of the op and Redis answered later, at the latest when the answer was
// received.
func (a *Account) RetryAt(c *Conditions, n int64) int64 {
	return max(a.thereAt(c, n), a.nextPollFor(c, n))
}

// thereAt returns the time (ns) at which n units are there, if no other call comes.
func (a *Account) thereAt(c *Conditions, n int64) int64 {
	return max(a.surelyThere(c, a.ProvedUntil(c, n)), a.fadesAt(c, n))
}

// surelyThere returns the time at which units exist whose absence is proved until the given time.
func (a *Account) surelyThere(c *Conditions, proved int64) int64 {
	if proved <= a.view.sent {
		return proved
	}
	if c.windowed() { // Redis counts in whole µs: two views may name the end of a window up to one apart
		proved += 1000
	}
	return proved + a.view.received - a.view.sent
}

// DeniedUntil returns the time (ns) until which a call for one unit is denied without asking.
func (a *Account) DeniedUntil(c *Conditions) int64 {
	return max(a.nextPollFor(c, 1), min(a.ProvedUntil(c, 1), a.view.relook))
}

// DenyUntil returns the time (ns) at which one unit can be had, for the RetryAfter of a DenyBudget's denials. The low
// bit is 0 if no unit exists before that time. It is 1 if units may exist, but this process must not ask yet.
func (a *Account) DenyUntil(c *Conditions) int64 {
	return max((a.thereAt(c, 1)+1)&^1, a.nextPollFor(c, 1)|1)
}

// A view and a lease of a window end with it. The bound of a window, Rate + (N-1)·C, does not need debits to arrive in
// time. The units of the process with the latest view are within that view, and each other process has at most C beyond
// its own. Units that are debited later count in their own window, and units of several windows in the one in which
// they arrive.

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
	v.At = max(v.At, c.Window.Begin(a.view.window)) // Redis's clock may be back
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

// clipsAt returns the time (ns) from which on, by the view, the ledger keeps the bucket from filling up. Other
// processes may have used units, and then it is later.
func (a *Account) clipsAt(c *Conditions) int64 {
	full := float64(a.view.cap-a.view.level) * 1000 / float64(c.Bucket.Refill)
	return a.view.received + int64(max(0, min(full, float64(MaxView))))
}
