package account

import "github.com/hybridlimit/hybridlimit/internal/algo"

// view is what Redis said last of the key.
type view struct {
	level     int64 // sub-units
	cap       int64 // sub-units to which it refills while the ledger stands
	nextPoll  int64 // ns; the earliest time at which this process may ask again
	refill    int64 // of a window: sub-units that come back each µs, until its end
	ends      int64 // of a window: ns at which it may be over, and the view with it; 0: never
	window    int64 // its number
	sent      int64 // ns; the question left. Redis answered later.
	received  int64 // ns; the answer came. Redis answered earlier.
	redisAt   int64 // µs of Redis time, opaque here
	createdAt int64 // of the state in Redis, µs of Redis time; 0: there was none that matters
	relook    int64 // ns; until when the view may prove a denial or put off an ask
	known     bool
}

// MaxView is how long (ns) a view proves a denial at most: limits are raised and keys are reset without a message to this process.
// The shell jitters it into Conditions.RelookIn.
const MaxView = int64(5e9)

// ledgerMemory is how long (ns) the units that Redis's ledger held for the fleet at the time of an answer keep the bucket from
// filling up: two generations.
const ledgerMemory = 2 * algo.MaxLease * 1000

// Viewed reports whether Redis has said something of the key.
func (a *Account) Viewed() bool { return a.view.known }

// ViewAge is the ns since the view was received; negative: there is none.
func (a *Account) ViewAge(now int64) int64 {
	if !a.view.known {
		return -1
	}
	return now - a.view.received
}

// ViewLevel is the level in the view, in sub-units of the limit then in force.
func (a *Account) ViewLevel() int64 { return a.view.level }

// fresh reports whether the view still says something. The view of a window dies at the earliest moment at which the window
// may be over: only Redis can say what is left of the next one, so the first call of each process and window asks.
func (a *Account) fresh(now int64) bool {
	return a.view.known && (a.view.ends == 0 || now < a.view.ends)
}

// outlasts reports whether the view is good for another d ns. A budget of credit may be spent until two ticks after its end,
// and its units count in the view's window.
func (a *Account) outlasts(now, d int64) bool {
	return a.view.ends == 0 || now+d <= a.view.ends
}

// level is the level of the view brought to now. It counts from a moment at or after Redis's answer, so it is never more than
// Redis has if no other process came.
func (a *Account) level(c *Conditions, now int64) int64 {
	if c.windowed() {
		return a.view.level + (now-a.view.received)/1000*a.view.refill
	}
	b := c.Bucket
	if now-a.view.received < ledgerMemory {
		b.Cap = a.view.cap
	}
	return b.Fill(a.view.level, (now-a.view.received)/1000)
}

// NextPoll is the earliest time (ns) at which this process may ask, because units are scarce and it had some; 0: it may ask
// now. To a process that is alone the view is all there is. With credit it needs no turns, and neither does a queue, whose
// last places no other process wants. Without credit it asks once in T at most.
func (a *Account) NextPoll(c *Conditions) int64 {
	next := min(a.view.nextPoll, a.view.relook)
	switch {
	case c.N > 1:
		return next
	case c.Credit > 0 || c.Bucket.Queue:
		return 0
	}
	return min(next, a.view.received+c.Interval)
}

// ProvedUntil is until when (ns) n units do not exist, as far as the view proves: since Redis answered, the level has grown by
// the refill at most, counted from when the question left. What is owed comes off first, down to Redis's floor, and what is
// given back is there. Zero: the view proves nothing.
func (a *Account) ProvedUntil(c *Conditions, n int64) int64 {
	if !a.view.known {
		return 0
	}
	if c.windowed() {
		return a.closedUntil(c, n)
	}
	return a.proved(c.Bucket, a.view.level, n)
}

// proved is ProvedUntil for the level of a bucket that may be another than the key's is now.
func (a *Account) proved(b algo.Bucket, level, n int64) int64 {
	after := float64(level) - float64(a.owed()-a.back())*float64(b.Unit)
	return a.view.sent + b.Wait(int64(max(-float64(b.Cap), min(after, float64(b.Cap)))), n)*1000
}

// Relook is until when (ns) the view may prove a denial.
func (a *Account) Relook() int64 { return a.view.relook }

// OwedLately is the units owed less those given back, without the fallback's: the part of a denial that the view does not show.
func (a *Account) OwedLately() int64 { return a.owed() - a.back() }

// DeniedUntil is until when (ns) a call for one unit is denied without asking.
func (a *Account) DeniedUntil(c *Conditions) int64 {
	return max(a.NextPoll(c), min(a.ProvedUntil(c, 1), a.view.relook))
}

// Resync has the view told to Redis with the next sync, where it may restore something that Redis lost (Tells) and is not
// newer than the loss that was noticed at lost. It reports whether it has.
func (a *Account) Resync(b algo.Bucket, lost int64) bool {
	if a.view.received > lost || !a.Tells(b, lost) {
		return false
	}
	a.resync = true
	return true
}

// LossNoticed is the longest (ns) that a loss goes unnoticed while Redis answers: three heartbeats, of which one tells of it,
// or the breaker's next probe after an outage.
const LossNoticed = int64(3e9)

// Tells reports whether Redis may learn from the view: it is of a state, and of one that was not full when Redis lost it, which
// was noticed at lost. A full one says nothing. The state may be full by now and still tell, because what the new state was
// debited since then counts too.
func (a *Account) Tells(b algo.Bucket, lost int64) bool {
	v := &a.view
	if v.ends > 0 {
		return v.known && v.createdAt != 0 && v.level < b.Cap && lost-LossNoticed < v.ends
	}
	return v.known && v.createdAt != 0 && b.Fill(v.level, (lost-LossNoticed-v.received)/1000) < b.Cap
}
