package permits

// Holding is the part of a key that one process holds, and the calls that use it or wait for it. The zero Holding holds
// nothing.
//
// Its caller keeps it behind a lock. After each event it takes the calls from Next and Denied until there is none, and
// then calls Settle. Two events need none of this: an Acquire that returns Held, and a Release that returns false.
type Holding struct {
	permits int64 // usable; calls in flight use some of them
	used    int64 // by the calls in flight; more than permits if calls were admitted without
	session uint64
	waiting queue
	came    int64 // permits that calls have asked for since the rate was computed
	peak    int64 // most permits in use since the last trim
	scarce  int64 // ns; another process was refused less than a second before
	leaves  int64 // ns; until then, permits above the process's part of the limit are left to a starving one
	trimAt  int64 // ns; permits that were not used are given back then; 0: not planned
	asks    int8  // calls that have not paid for an ask
	gives   int8  // ended calls that have not paid for a give-back

	queued bool // an op is due in the lane
	flying bool // an op is in flight
	tells  bool // an op is due in any case
	resets bool // the next op is a Reset
	plenty bool // a quarter of the permits was free at the last answer

	booked int64 // by the last answer
	had    int64 // that Redis certainly has: less than booked after an op without an answer
	number int64 // of the message of the last answer; 0: none
	free   int64 // at the last answer
	learns int64 // ns; Redis grants nothing until then
	proven int64 // of permits: those that are no other's, even if Redis does not know all holdings

	rate    float64 // permits that calls ask for in a second, smoothed
	rateAt  int64   // ns
	askAt   int64   // ns; not before
	giveAt  int64   // ns; not before
	retryAt int64   // ns; refused calls ask again then
	retry   int64   // ns; the time between two such asks
	sentAt  int64   // ns; of the last op
	sentIn  uint64  // its session
	tellAt  int64   // ns; tell the holding again then
	wake    int64   // ns; 0: never

	claims    []Claim // holdings of dead processes
	holders   []Claim // the other holders at the last refusal
	heard     []int64 // ns; of each holder: the first of the refusals in a row that named this message of it
	holdersAt int64   // ns
}

// Admission is the way in which a call got its permits.
type Admission uint8

// The admissions.
const (
	// Waits: the call has none.
	Waits Admission = iota
	// Held: they are of the holding.
	Held
	// Fallback: they are of the process's share, without Redis.
	Fallback
)

// Take is Acquire in a process that is a member, in a session. It returns false, without an effect, if Acquire must
// decide.
func (h *Holding) Take(session uint64, n int64) bool {
	if h.waiting.first != nil || n > h.permits-h.used || h.session != session {
		return false
	}
	h.came += n
	if h.asks < mostCredit {
		h.asks++
	}
	h.used += n
	if h.used > h.peak {
		h.peak = h.used
	}
	return true
}

// Acquire admits a call for n permits that the process has at hand. Otherwise it has no effect but on the demand, and
// the call may Wait.
func (h *Holding) Acquire(c *Conditions, n, now int64) Admission {
	h.came += n
	if h.asks < mostCredit {
		h.asks++
	}
	if h.waiting.first != nil {
		return Waits
	}
	return h.admit(c, n, now)
}

// admit takes n permits if they are at hand.
func (h *Holding) admit(c *Conditions, n, now int64) Admission {
	how := Held
	if h.used+n > h.permits || !h.live(c, now) {
		if h.used+n > c.Share || !h.alone(c, now) {
			return Waits
		}
		how = Fallback
	}
	h.used += n
	if h.used > h.peak {
		h.peak = h.used
	}
	return how
}

// live reports whether the process may use permits that no call uses yet.
func (h *Holding) live(c *Conditions, now int64) bool {
	return now < c.Until && h.session == c.Session
}

// alone reports whether the fallback decides: the process is not a member, or Redis is away or learns.
func (h *Holding) alone(c *Conditions, now int64) bool {
	return c.Away || now >= c.Until && !c.Joins || now < h.learns
}

// Fall admits a call by the fallback, although Redis may be there: its answer did not come in time.
func (h *Holding) Fall(c *Conditions, n int64) bool {
	if h.used+n > c.Share {
		return false
	}
	h.used += n
	h.peak = max(h.peak, h.used)
	return true
}

// Release ends a call. It reports whether the caller must go on with Next and Settle.
func (h *Holding) Release(n int64) bool {
	h.used -= n
	if h.gives < mostCredit {
		h.gives++
	}
	return h.waiting.first != nil || h.booked > h.used && (h.trimAt == 0 || h.scarce > 0 || h.leaves > 0)
}

// Wait lets a call wait that Acquire did not admit.
func (h *Holding) Wait(w *Waiter) { h.waiting.add(w) }

// Hurry makes a call that waits end with the next answer.
func (h *Holding) Hurry(w *Waiter) {
	if w.in && !w.Once {
		h.waiting.once++
	}
	w.Once = true
}

// Leave takes a call out of the queue. It reports false if the call does not wait any more. The call pays for the
// give-back of the permits that it may have asked for.
func (h *Holding) Leave(w *Waiter) bool {
	if !w.in {
		return false
	}
	h.waiting.remove(w)
	h.gives = min(h.gives+1, mostCredit)
	return true
}

// Next admits the first waiting call if its permits are at hand, and returns it. No call overtakes another.
func (h *Holding) Next(c *Conditions, now int64) *Waiter {
	w := h.waiting.first
	if w == nil {
		return nil
	}
	h.leave(c, now)
	how := h.admit(c, w.N, now)
	if how == Waits {
		return nil
	}
	h.waiting.remove(w)
	w.Fallback = how == Fallback
	return w
}

// Denied takes a call out of the queue that does not wait for a second answer, or that no answer will come to. It is
// called after each event, so it looks at no call that cannot be denied: the calls that an answer was told to come
// before the others.
func (h *Holding) Denied(c *Conditions, now int64) *Waiter {
	large := h.waiting.largest > c.Limit
	if !large && h.waiting.once == 0 {
		return nil
	}
	alone := h.alone(c, now)
	for w := h.waiting.first; w != nil && (w.told || alone || large); w = w.next {
		if w.N > c.Limit || w.Once && (w.told || alone) {
			h.waiting.remove(w)
			h.gives = min(h.gives+1, mostCredit)
			return w
		}
	}
	return nil
}

// Idle reports whether the holding may be forgotten: it would say no more than a new one. While the process is not a
// member, a holding that went back is kept: Redis may be about to lose the give-back in a failover.
func (h *Holding) Idle(c *Conditions, now int64) bool {
	return h.booked == 0 && h.used == 0 && h.waiting.first == nil && !h.queued && !h.flying && !h.tells && len(h.claims) == 0 &&
		now >= h.scarce && now >= h.learns && now-h.rateAt >= second && (h.number == 0 || c.Live(now) && now-h.sentAt >= forgets)
}

// Unused reports whether no call and no op needs the holding. One that is forgotten before it is Idle may cost a
// message more.
func (h *Holding) Unused() bool {
	return h.booked == 0 && h.used == 0 && h.waiting.first == nil && !h.queued && !h.flying && !h.resets && len(h.claims) == 0
}

// Used returns the permits of the calls in flight.
func (h *Holding) Used() int64 { return h.used }

// Booked returns the permits that Redis had for the process at the last answer.
func (h *Holding) Booked() int64 { return h.booked }

// Usable returns the permits of Booked that calls may use.
func (h *Holding) Usable() int64 { return h.permits }

// Ready reports whether a permit is at hand for a call that comes now, without the fallback.
func (h *Holding) Ready(c *Conditions, now int64) bool {
	return h.waiting.first == nil && h.used < h.permits && h.live(c, now)
}

// Free returns the permits that were left in Redis at the last answer.
func (h *Holding) Free() int64 { return max(0, h.free) }

// Learns reports whether Redis grants nothing yet, because it may not know all holdings.
func (h *Holding) Learns(now int64) bool { return now < h.learns }

// Waiting returns the permits that waiting calls need.
func (h *Holding) Waiting() int64 { return h.waiting.need }
