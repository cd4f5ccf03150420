package ratelease

import "math"

// Hand is what a process has of a key. Its zero value has nothing. It has no lock.
type Hand struct {
	tokens, rate, depth float64 // units; units per ns; units
	held                float64 // units; the most that tokens may be after an exchange
	spilled             float64 // units that the bucket had no room for, since the last exchange
	refilled            int64   // ns
	until               int64   // ns; the end of the lease
	renewAt             int64   // ns
	nextAt              int64   // ns; see Answer.Next
	asked               int64   // ns; the last exchange, or the first call
	heardAt             int64   // ns; the last answer
	best, queued        int64   // ns; the shortest exchange, and the time beyond twice that of the last one
	after               int64   // ns; no exchange before, because one was lost
	pause               int64   // ns
	offered             float64 // units asked for since the last exchange
	demand              float64 // units per second, at the last exchange
	most                int64   // units of the largest call since then
	view                View
	owed, acked         int64
	used                int64   // ns; the last call
	hurried             float64 // exchanges before nextAt, less those that time has taken off
	hurriedAt           int64   // ns
	heard, busy         bool
	vain                bool    // the last answer brought neither a rate nor units
	told                float64 // offered of the exchange in flight
	got                 int64   // Units of the last answer
	resets              bool    // the next op resets the key
	leaves              bool    // the exchange in flight gives everything back
}

// Conditions are what a decision depends on beside the hand.
type Conditions struct {
	Terms
	Procs int64 // N
	Away  bool  // Redis does not answer
	Wait  int64 // ns; an answer of Redis that takes longer is late
}

// Action is what becomes of a call.
type Action uint8

// The actions.
const (
	Admit Action = iota
	Deny
	Wait    // for the answer to an exchange
	Without // decide without Redis
)

const (
	lifeNs                = int64(Life) * 1000
	shortPause, longPause = int64(50e6), int64(1e9) // between exchanges that fail
	// margin is the time (ns) by which a lease ends early: two ticks of a clock that is read every 5 ms.
	margin = int64(10e6)
)

// refill brings the tokens up to date.
func (h *Hand) refill(now int64) {
	if to := min(now, h.until); to > h.refilled {
		refill := h.rate * float64(to-h.refilled)
		keeps := math.Min(refill, math.Max(0, h.depth-h.tokens))
		h.tokens, h.spilled, h.refilled = h.tokens+keeps, h.spilled+refill-keeps, to
	}
	if now >= h.until {
		h.spilled += h.tokens
		h.tokens, h.rate, h.depth = 0, 0, 0
	}
}

// Call decides a call of n units. exchange reports whether an exchange should begin now.
func (h *Hand) Call(c *Conditions, n, now int64) (a Action, exchange bool) {
	h.refill(now)
	if h.asked == 0 {
		h.asked = now
	}
	h.used = now
	h.offered += float64(n)
	h.most = max(h.most, n)
	if h.tokens >= float64(n) {
		h.tokens -= float64(n)
		return Admit, now >= h.renewAt && h.may(c, now)
	}
	switch {
	case c.Away && h.goesOn(c):
		return Deny, false
	case c.Away, now < h.after:
		return Without, false
	case h.busy && now-h.asked >= c.Wait:
		return Without, false
	case h.busy && h.heard && now < h.until:
		return Deny, false
	case h.busy:
		return Wait, false
	case h.reason(c, float64(n), now):
		return Wait, true
	}
	return Deny, false
}

// goesOn reports whether the process goes on with its leased rate without Redis. It does not use a share beside it. A rate
// that is far below the share ends, since another process may have the rest.
func (h *Hand) goesOn(c *Conditions) bool {
	if h.rate == 0 {
		return false
	}
	if h.rate*1e9*2 >= float64(c.Rate)/Micro/float64(max(1, c.Procs)) {
		return true
	}
	h.rate = 0
	return false
}

func (h *Hand) may(c *Conditions, now int64) bool { return !h.busy && !c.Away && now >= h.after }

// vainEvery is the least time (ns) between two exchanges for units while the bucket in Redis has plenty, if the last one
// brought none.
const vainEvery = lifeNs / 8

// queuedFrom is the time (ns) from which an exchange had to queue.
const queuedFrom = int64(5e6)

// queuedTimes is the least time between two exchanges, in times of the queue before Redis.
const queuedTimes = 20

// reason reports whether a call without tokens is a reason for an exchange.
func (h *Hand) reason(c *Conditions, n float64, now int64) bool {
	ago, level, every := now-h.asked, h.Level(&c.Terms, now), int64(0)
	if h.vain {
		every = vainEvery
	}
	surge := h.offered/math.Max(0.25, float64(ago)/1e9) > 2*h.demand+4
	switch {
	case !h.heard, now >= h.until:
		return true
	case ago < h.queued*queuedTimes:
		return false
	case surge && ago > lifeNs/8:
		return true
	case level >= float64(c.Burst)/Micro/4 && ago >= every:
		return true
	case level+h.tokens < n:
		return false
	case now >= h.nextAt || h.mayHurry(c, now):
		return true
	}
	return false
}

// hurries is the number of exchanges that calls may cause in turn, before Answer.Next, while Redis has the units.
// hurryEvery (ns) times N is the time between two in the long run, at most hurryMost.
const hurries, hurryEvery, hurryMost = 8, lifeNs / 32, 2 * lifeNs

// mayHurry reports whether a call may cause an exchange before Answer.Next.
func (h *Hand) mayHurry(c *Conditions, now int64) bool {
	every := float64(min(hurryEvery*max(1, c.Procs), hurryMost))
	h.hurried, h.hurriedAt = math.Max(0, h.hurried-float64(now-h.hurriedAt)/every), now
	if h.hurried > hurries-1 {
		return false
	}
	h.hurried++
	return true
}

// Level returns the units in Redis, as far as they are known.
func (h *Hand) Level(c *Terms, now int64) float64 {
	refill := float64(now-h.heardAt) * float64(c.Rate-min(c.Rate, h.view.Out)) / 1e9
	return math.Min(float64(c.Burst), float64(h.view.Level)+refill) / Micro
}

// Op begins an exchange. want is the units of the calls that wait. number is larger than that of any op before.
func (h *Hand) Op(c *Conditions, want, number, now int64) Op {
	h.refill(now)
	span := float64(now-h.asked) / 1e9
	demand := h.offered / math.Max(0.25, span)
	if h.heard && span < 1 { // a short look: with the last estimate
		demand = h.offered + (1-span)*h.demand
	}
	var wish int64 // callers that wait call less often than they would
	if want > 0 && h.heard && span < 1 && h.Level(&c.Terms, now) >= float64(c.Burst)/Micro/4 {
		wish = min(2*h.got, c.Burst/8)
	}
	keep := h.tokens
	if spare := math.Floor(h.tokens - math.Max(demand, h.depth)); spare > 0 && want == 0 {
		keep -= spare
	}
	op := Op{
		Terms: c.Terms, Number: number, Procs: c.Procs, Demand: int64(math.Min(demand, Largest) * Micro), Span: min(Life, int64(span*1e6)),
		Have: int64(math.Ceil(keep * Micro)), Back: int64(math.Floor((h.tokens - keep) * Micro)), Spilt: int64(math.Floor(h.spilled * Micro)),
		Want: int64(math.Ceil(math.Max(0, float64(want)-keep) * Micro)), Wish: wish, Most: max(1, min(h.most, c.Burst/Micro/2)),
		Owed: h.owed, Acked: h.acked, Reset: h.resets, View: h.view,
	}
	h.demand, h.told, h.offered, h.most = demand, h.offered, 0, 0
	h.tokens, h.spilled, h.rate = keep, 0, 0 // Redis counts the new rate from now on
	h.asked, h.busy = now, true
	return op
}

// Hear takes the answer to an op that was sent at a time (ns). Then the calls that waited Take their units, and Served
// ends the exchange. chance is a random number in [0, 1).
func (h *Hand) Hear(op Op, a Answer, sent, now int64, chance float64) {
	h.refill(now)
	h.busy, h.heard, h.after, h.pause, h.told = false, true, 0, 0, 0
	if h.until = sent + lifeNs - margin; h.leaves {
		h.until, h.heard, h.leaves = now, false, false
	}
	h.refilled, h.heardAt = now, now
	if took := now - sent; h.best == 0 || took <= h.best {
		h.best = took
	}
	if h.queued = now - sent - 2*h.best; h.queued < queuedFrom {
		h.queued = 0
	}
	h.resets = h.resets && !op.Reset
	h.rate, h.depth = float64(a.Rate)/Micro/1e9, float64(a.Depth)/Micro
	h.tokens += float64(a.Units) / Micro
	h.got = a.Units
	h.vain = a.Rate == 0 && a.Units == 0
	h.held = float64(a.Held) / Micro
	h.renewAt = sent + lifeNs*3/4 + int64(chance*float64(lifeNs*3/16))
	h.nextAt = now + a.Next*1000
	h.acked, h.view = max(h.acked, op.Owed), a.View()
}

// Served gives back the units that were for calls which are gone.
func (h *Hand) Served() {
	if over := h.tokens - h.held; over > 0 {
		h.tokens, h.spilled = h.held, h.spilled+over
	}
}

// Lost notes that an op had no answer. Redis may have given the rate to others, so the process has none.
func (h *Hand) Lost(now int64, chance float64) {
	h.busy, h.leaves = false, false
	h.offered += h.told
	h.told = 0
	h.pause = min(max(2*h.pause, shortPause), longPause)
	h.after = now + h.pause/2 + int64(chance*float64(h.pause/2))
}

// Local notes n units that were admitted without Redis.
func (h *Hand) Local(n int64) { h.owed += n }

// Take spends n units for a call that waited, if they are there.
func (h *Hand) Take(n, now int64) bool {
	h.refill(now)
	if h.tokens < float64(n) {
		return false
	}
	h.tokens -= float64(n)
	return true
}

// LookEvery is the time (ns) between two looks at a lease that may be idle.
const LookEvery = int64(1e9)

// Live reports whether there is a lease.
func (h *Hand) Live(now int64) bool { return now < h.until }

// idleCalls is the number of calls that an idle process would have had by its demand, had they not stopped.
const idleCalls = 4

// Idle reports whether the process should give everything back now: no call came for a while. It also does so before the
// lease ends, or the units in hand would be lost with it.
func (h *Hand) Idle(c *Conditions, now int64) bool {
	h.refill(now)
	quiet := now - h.used
	if !h.Live(now) || !h.may(c, now) || quiet < LookEvery {
		return false
	}
	ends := h.until-now <= LookEvery+LookEvery/4 && h.tokens+h.spilled >= 1
	return ends || h.rate > 0 && float64(quiet)*h.demand >= idleCalls*1e9
}

// Leave is Op for a process that gives everything back.
func (h *Hand) Leave(c *Conditions, want, number, now int64) Op {
	op := h.Op(c, want, number, now)
	op.Back += int64(math.Floor(h.tokens * Micro))
	op.Demand, op.Have, op.Want = 0, 0, 0
	h.tokens, h.leaves = 0, true
	return op
}

// Reset makes the next op reset the key.
func (h *Hand) Reset() { h.resets = true }

// Known reports whether there ever was an answer, so that Level means something.
func (h *Hand) Known() bool { return h.view.Born > 0 }

// Busy reports whether an exchange is in flight.
func (h *Hand) Busy() bool { return h.busy }

// Full returns the ns until the key is an unused key, as far as is known.
func (h *Hand) Full(c *Terms, now int64) int64 {
	if !h.Known() {
		return 0
	}
	missing := float64(c.Burst-h.view.Level)/Micro - h.tokens
	return max(0, int64(missing*Micro*1e9/float64(c.Rate))-(now-h.heardAt))
}

// Left returns the units in hand.
func (h *Hand) Left(now int64) int64 {
	h.refill(now)
	return int64(h.tokens)
}

// Retry returns the ns after which a call of n units may succeed.
func (h *Hand) Retry(n, now int64) int64 {
	h.refill(now)
	wait := max(h.nextAt, h.after) - now
	if missing := float64(n) - h.tokens; h.rate > 0 && float64(n) <= h.depth {
		wait = min(wait, int64(math.Ceil(missing/h.rate)))
	}
	return max(1e6, min(wait, lifeNs))
}

// Leased returns the leased rate, in units a second, and the units in hand.
func (h *Hand) Leased(now int64) (rate, tokens float64) {
	h.refill(now)
	return h.rate * 1e9, h.tokens
}

// Forgo ends the debt, and returns it.
func (h *Hand) Forgo() int64 {
	owes := h.Owes()
	h.acked = h.owed
	return owes
}

// Owes returns the units that Redis has not debited.
func (h *Hand) Owes() int64 { return h.owed - h.acked }
