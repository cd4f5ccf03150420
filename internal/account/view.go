package account

import "github.com/hybridlimit/hybridlimit/internal/algo"

// view is the last answer of Redis for the key.
type view struct {
	level     int64 // sub-units
	cap       int64 // sub-units to which the level refills while the ledger holds its units
	nextPoll  int64 // ns; the earliest time at which this process may ask again
	refill    int64 // of a window: sub-units that come back each µs, until its end
	ends      int64 // of a window: ns; the earliest time at which it may be over, and the view with it; 0: never
	window    int64 // the number of that window
	sent      int64 // ns; the op was sent. Redis answered later.
	received  int64 // ns; the answer was received. Redis answered earlier.
	redisAt   int64 // µs of Redis time, opaque here; 0: nothing is known
	createdAt int64 // of the state in Redis, µs of Redis time; 0: Redis needed no state
	relook    int64 // ns; until then the view may prove a denial
}

// known reports whether Redis has answered.
func (v *view) known() bool { return v.redisAt != 0 }

// MaxView is the longest time (ns) for which a view proves a denial: limits are raised and keys are reset without a
// message to this process. The shell jitters it into Conditions.RelookIn.
const MaxView = int64(5e9)

// ledgerMemory is the time (ns) for which the units in Redis's ledger at an answer keep the bucket from filling up: two
// generations.
const ledgerMemory = 2 * algo.MaxLease * 1000

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

// fresh reports whether the view is still valid. The view of a window ends at the earliest time at which the window may
// be over. Only Redis knows the units left in the next window, so the first call of each process in each window asks.
func (a *Account) fresh(now int64) bool {
	return a.view.known() && (a.view.ends == 0 || now < a.view.ends)
}

// outlasts reports whether the view is valid for another d ns. A budget of credit may be spent for up to two ticks
// after its expiry, and its units count in the view's window.
func (a *Account) outlasts(now, d int64) bool {
	return a.view.ends == 0 || now+d <= a.view.ends
}

// level returns the level of the view with the refill up to now. The refill counts from the receipt of the answer,
// which is later than the answer itself. So the result is at most the level in Redis, if no other process has taken
// units.
func (a *Account) level(c *Conditions, now int64) int64 {
	if c.windowed() {
		return min(a.rise(c, now))
	}
	b := c.Bucket
	if now-a.view.received < ledgerMemory {
		b.Cap = a.view.cap
	}
	return b.Fill(a.view.level, (now-a.view.received)/1000)
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

// hopes reports whether, by the view, the ledger holds units of other processes, which they can return.
func (a *Account) hopes(c *Conditions) bool {
	return !c.windowed() && !c.Bucket.Queue && c.Bucket.Cap-a.view.cap-a.booked.had*c.Bucket.Unit >= c.Bucket.Unit
}

// hopesHere is hopes for a window that is used up: other processes may hold some of its units. Redis does not know how
// many.
func (a *Account) hopesHere(c *Conditions) bool {
	return c.windowed() && c.N > 1 && a.view.known() && a.view.level < c.Bucket.Unit
}

// relookAt returns the time until which a view that is received now may prove a denial. If other processes hold units,
// these are back, or spent, after the life of a lease, or in a window after relookWindow. While Redis refuses, the
// process asks less and less often. was is the view before, and hoped reports whether it had the same reason.
func (a *Account) relookAt(c *Conditions, was view, hoped, refused bool, now int64) int64 {
	wait := int64(algo.MaxLease * 1000)
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

// Relook returns the time (ns) until which the view may prove a denial.
func (a *Account) Relook() int64 { return a.view.relook }

// OwedLately returns the units owed less the units given back, without the fallback's units. A denial depends on them,
// and the view does not show them.
func (a *Account) OwedLately() int64 { return a.owed() - a.back() }

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
