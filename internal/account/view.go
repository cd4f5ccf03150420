package account

import "github.com/hybridlimit/hybridlimit/internal/algo"

// MaxView is the longest time (ns) for which a view proves a denial: limits are raised and keys are reset without a
// message to this process. The shell jitters it into Conditions.RelookIn.
const MaxView = int64(5e9)

// ledgerMemory returns the time (ns) for which units in the ledger at the answer keep the bucket from filling up: two
// generations.
func (v *view) ledgerMemory() int64 {
	span := v.refill & 3
	if v.ends > 0 { // it is a window's
		span = 0
	}
	return 2 * algo.Generation * 1000 << span
}

// Viewed reports whether there is a view of the key.
func (a *Account) Viewed() bool { return a.view.known() }

// ViewAge returns the ns since the view was received; negative: there is none.
func (a *Account) ViewAge(now int64) int64 {
	if !a.view.known() {
		return -1
	}
	return now - a.view.received
}

// ViewLevel returns the level in the view, in sub-units of the limit in force at that time.
func (a *Account) ViewLevel() int64 { return a.view.level }

// Relook returns the time (ns) until which the view may prove a denial.
func (a *Account) Relook() int64 { return a.view.relook }

// fresh reports whether the view is still valid. The view of a window ends at the earliest time at which the window may
// be over. Only Redis knows the units left in the next window, so the first call of each process in each window asks.
func (a *Account) fresh(now int64) bool {
	return a.view.known() && (a.view.ends == 0 || now < a.view.ends)
}

// ranOut reports whether the process lived on a lease from before the window and has no view of it yet.
func (a *Account) ranOut(now int64) bool {
	return a.view.ends != 0 && !a.fresh(now) && now < a.opened.ends
}

// here returns the current window: that of the view or, while the process lives on a lease from before, of the lease.
func (a *Account) here(now int64) place {
	switch {
	case a.ranOut(now):
		return a.opened
	case a.view.ends != 0 && a.fresh(now):
		return place{a.view.window, a.view.ends}
	}
	return place{}
}

// level returns the level of the view with the refill up to now. The refill counts from the receipt of the answer,
// which is later than the answer itself. So the result is at most the level in Redis, if no other process has taken
// units.
func (a *Account) level(c *Conditions, now int64) int64 {
	if c.windowed() {
		return min(a.rise(c, now))
	}
	b := c.Bucket
	if now-a.view.received < a.view.ledgerMemory() {
		b.Cap = a.view.cap
	}
	return b.Fill(a.view.level, (now-a.view.received)/1000)
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

// Remaining estimates the units that the fleet has left: the level of the last view, plus the held units, less the owed
// units. Of a class it is the level above the floor. A negative value is debt, or the part of the floor that is used.
func (a *Account) Remaining(c *Conditions, now int64) int64 {
	burst := c.Limit.BurstSize() - c.Floor
	left := burst
	switch {
	case a.ranOut(now):
		left = a.nextLevel(c, now)/c.Bucket.Unit + a.Held()
	case a.fresh(now):
		level := a.level(c, now)
		if c.windowed() {
			level = min(a.reach(c, now))
		}
		if left = level / c.Bucket.Unit; left*c.Bucket.Unit > level { // the division rounded a debt up
			left--
		}
		left += a.Held()
	}
	left -= a.Owed() + a.back() - a.backHere(c)
	return max(-burst-2*c.Floor, min(left, burst)) // a burst of debt is below the floor
}

// Barred returns the part of Remaining that calls of this process cannot have before its next poll: all but those held.
func (a *Account) Barred(c *Conditions, now int64) int64 {
	if c.Broken || now >= a.nextPollFor(c, 1) {
		return 0
	}
	return max(0, a.Remaining(c, now)-a.Held())
}

// nextPollFor is NextPoll for a call for n units. A process that is alone asks although its next poll lies ahead if the
// view covered the call when it came, or if n units take T or longer to refill. Redis then has the units, unless
// another process has come. Each such ask takes n units, so on average they are no more than one in T.
func (a *Account) nextPollFor(c *Conditions, n int64) int64 {
	next := a.NextPoll(c)
	if next == 0 || c.N > 1 || c.windowed() {
		return next
	}
	if a.ProvedUntil(c, n) <= a.view.sent || float64(n)*float64(c.Bucket.Unit)*1000 >= float64(c.Interval)*float64(c.Bucket.Refill) {
		return 0
	}
	return next
}

// alonePolls is the largest number of asks in T of a process that is alone, has no credit, and is over the limit. With
// one, units that had refilled were denied for up to T: a loop over a limit of 100 a second got 595 of 600.
const alonePolls = 5

// NextPoll returns the earliest time (ns) at which this process may ask, because units are scarce and it has had some;
// 0: it may ask now. For a process that is alone, the view is complete. With credit it has no next poll. Nor has it one
// for a queue, because no other process wants the last places. Without credit it asks once for each unit, but at most
// alonePolls times in T.
func (a *Account) NextPoll(c *Conditions) int64 {
	switch {
	case a.refunds.units() > 0: // the next sync gives units back before it asks
		return 0
	case c.N > 1:
		return a.view.nextPoll
	case c.Credit > 0 || c.Bucket.Queue:
		return 0
	}
	return min(a.view.nextPoll, a.view.received+max(c.Interval/alonePolls, c.Bucket.Unit*1000/c.Bucket.Refill))
}

// stayAway sets the next poll of a process that a sliding window refused: the time at which one unit for each process
// of the fleet has come back. Redis gives no next poll for windows. Without stayAway, each refused call would ask
// again: under x times the permitted load, x ops per admission. With it there are at most two, because a process that
// gets its unit need not stay away.
func (a *Account) stayAway(c *Conditions) {
	if c.windowed() && a.view.refill > 0 && c.N > 1 && a.view.level < c.N*c.Bucket.Unit {
		a.view.nextPoll = min(a.view.ends, a.view.relook, a.view.received+c.N*c.Bucket.Unit/a.view.refill*1000)
	}
}

// hopes reports whether, by the view, the ledger holds units of other processes, which they can return.
func (a *Account) hopes(c *Conditions) bool {
	return c.hasLedger() && c.Bucket.Cap-a.view.cap-a.booked.had*c.Bucket.Unit >= c.Bucket.Unit
}

// hopesHere is hopes for a window that is used up: other processes may hold units. Redis does not know how many.
func (a *Account) hopesHere(c *Conditions) bool {
	return c.windowed() && c.N > 1 && a.view.known() && a.view.level < c.Bucket.Unit
}

// relookAt returns the time until which a view that is received now may prove a denial. If other processes hold units,
// these are back, or spent, after lookEvery, or in a window after relookWindow. While Redis refuses, the
// process asks less and less often. was is the view before, and hoped reports whether it had the same reason.
func (a *Account) relookAt(c *Conditions, was view, hoped, refused bool, now int64) int64 {
	wait := int64(lookEvery)
	switch {
	case a.hopesHere(c):
		wait = relookWindow
	case !a.hopes(c):
		return now + c.RelookIn
	}
	if hoped && refused {
		wait = max(wait, 2*(was.relook-was.received))
	}
	return now + min(wait, c.RelookIn)
}

// Resync makes the next sync tell Redis the view. It does so only if the view is not newer than the loss noticed at
// lost, and may restore a state that Redis lost (Tells). It reports whether it did.
func (a *Account) Resync(b algo.Bucket, lost int64) bool {
	if a.view.received > lost || !a.Tells(b, lost) {
		return false
	}
	a.resync = true
	return true
}

// LossNoticed is the longest time (ns) for which a loss goes unnoticed while Redis answers: three heartbeats, one of
// which reports it, or the breaker's next probe after an outage.
const LossNoticed = int64(3e9)

// Tells reports whether Redis may need the view to restore a state. The state must have existed, and must not have been
// full at the time of the loss, which was noticed at lost. By now the state may be full, and still the view counts,
// together with the units debited from the new state since then.
func (a *Account) Tells(b algo.Bucket, lost int64) bool {
	v := &a.view
	if v.ends > 0 {
		used := v.level < b.Cap || v.cap < b.Cap // of this window, or of the next one
		return v.known() && v.createdAt != 0 && used && lost-LossNoticed < v.ends
	}
	return v.known() && v.createdAt != 0 && b.Fill(v.level, (lost-LossNoticed-v.received)/1000) < b.Cap
}

// nextTold returns the units of the next window that were leased at the view.
func (a *Account) nextTold(c *Conditions) int64 {
	if !c.windowed() {
		return 0
	}
	return (c.Window.Cap - a.view.cap) / c.Window.Unit
}

// seen is told with the level above the floor.
func (a *Account) seen(c *Conditions) algo.View {
	return algo.View{
		Level: a.view.level, Prev: a.view.refill * c.Window.Tick, Next: a.nextTold(c), At: a.view.redisAt, Born: a.view.createdAt,
	}
}

// Span returns the window that an op names, of a calendar window: the process's, or, of one from the first use, that of
// the view, while it lasts.
func (a *Account) Span(c *Conditions, now int64) algo.Span {
	switch {
	case !c.Window.FromUse:
		return c.Window.Span()
	case !a.view.known() || !a.fresh(now):
		return algo.Span{}
	}
	begin := c.Window.Begin(a.view.window)
	end := a.view.redisAt + (a.view.ends-a.view.sent)/1000
	return algo.Span{Begin: a.view.window, Length: (end - begin) / c.Window.Step}
}

// told returns the view as Redis gets it back.
func (a *Account) told(c *Conditions) algo.View {
	v := a.seen(c)
	v.Level += c.Floor*c.Bucket.Unit + a.lowered
	return v
}

// Told returns the view as Redis gets it back with a direct call. A state that Redis has lost is restored from it.
func (a *Account) Told(c *Conditions) (v algo.View) {
	if a.view.known() {
		v = a.told(c)
	}
	return v
}
