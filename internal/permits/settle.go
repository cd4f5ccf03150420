package permits

import "math"

// Settle decides whether an op is due. If it returns true, the caller adds the key to its lane, once. Settle is also
// called at the time that Wake returns.
func (h *Holding) Settle(c *Conditions, now int64) bool {
	h.wake = 0
	if now >= h.scarce {
		h.scarce = 0
	}
	h.leave(c, now)
	if !c.Live(now) || h.queued || h.flying { // Settle is called again when this has changed
		return false
	}
	if h.booked > 0 {
		h.at(h.tellAt)
	}
	trim := h.trimAt > 0 && now >= h.trimAt
	if trim {
		h.trimAt = 0
		h.smooth(now)
	} else if h.trimAt > 0 {
		h.at(h.trimAt)
	}
	due := h.tells || h.booked > 0 && now >= h.tellAt || h.wants(now) || h.untold(now)
	due = due || h.returns(c, now, trim) || h.listens(now)
	if trim {
		h.peak = h.used
	}
	h.queued = due
	return due
}

// Wake returns the time (ns) at which Settle must be called again without another event; 0: never.
func (h *Holding) Wake() int64 { return h.wake }

func (h *Holding) at(t int64) {
	if h.wake == 0 || t < h.wake {
		h.wake = t
	}
}

// Tell makes an op due: the holding must be told again. One that went back not long before a time is told too, because
// a Redis that lost the give-back still has it. The time is now, or that of Member.Touched.
func (h *Holding) Tell(at int64) {
	if h.booked > 0 || h.used > 0 || h.flying || h.number > 0 && at-h.sentAt < forgets {
		h.tells = true
	}
}

// Adapt gives the key another limit. Nothing is admitted until the next answer; calls in flight go on.
func (h *Holding) Adapt(now int64) {
	h.permits = 0
	h.Tell(now)
}

// Reset makes Redis forget all holdings of the key with the next op, and learn them again.
func (h *Holding) Reset() { h.resets, h.tells = true, true }

// Rename takes the holding along to a new identity. before is the old one.
func (h *Holding) Rename(before string) {
	if h.number > 0 && h.booked > 0 {
		h.claims = append(h.claims, Claim{before, h.number})
	}
	h.permits, h.booked, h.had, h.number = min(h.permits, h.used), 0, 0, 0
	h.tells = h.tells || h.used > 0 || len(h.claims) > 0
}

// wants reports whether waiting calls ask now.
func (h *Holding) wants(now int64) bool {
	switch {
	case h.waiting.first == nil:
		return false
	case now < h.askAt:
		h.at(h.askAt)
		return false
	case h.asks > 0:
		h.asks--
		return true
	case now < h.retryAt:
		h.at(h.retryAt)
		return false
	case h.gives > 1: // a call that ended and whose permits went to another one has not paid with it
		h.gives--
		return true
	}
	return h.pays(&h.asks, now)
}

// untold reports whether calls that the fallback admitted are told now, so that Redis counts them.
func (h *Holding) untold(now int64) bool {
	if h.used <= h.booked {
		return false
	}
	if now < h.giveAt {
		h.at(h.giveAt)
		return false
	}
	return h.pays(&h.asks, now)
}

// returns reports whether permits go back now: at once where they are scarce or seldom used, else at the next trim.
func (h *Holding) returns(c *Conditions, now int64, trim bool) bool {
	if h.booked <= h.used {
		return false
	}
	seldom := now < h.scarce || c.Exact || h.rate*h.spareFor() < 1
	if !seldom && !trim || h.booked <= h.keeps(c, now) {
		if h.trimAt == 0 {
			h.trimAt = now + int64(h.spareFor()*second)
		}
		h.at(h.trimAt)
		return false
	}
	if now < h.giveAt {
		h.at(h.giveAt)
		return false
	}
	return c.Ends || h.pays(&h.gives, now)
}

// leave takes permits above the process's part of the limit out of use while another process starves, before a call can
// use them again.
func (h *Holding) leave(c *Conditions, now int64) {
	if now >= h.leaves {
		h.leaves = 0
	} else if part := c.Limit / max(1, c.Procs); part > 0 && h.used >= part {
		h.permits = min(h.permits, h.used)
	}
}

// listens reports whether an op is due only for its answer: does another process starve? Without it, a process whose
// calls always find permits would send nothing. Calls that needed no ask have paid for it.
func (h *Holding) listens(now int64) bool {
	every := int64(listen)
	if h.plenty {
		every *= 5
	}
	if h.booked == 0 || h.asks < mostCredit {
		return false
	}
	if now < h.sentAt+every {
		h.at(h.sentAt + every)
		return false
	}
	h.asks--
	return true
}

// pays reports whether an op is sent now: a call has paid for it, or it is the free one of a second.
func (h *Holding) pays(credit *int8, now int64) bool {
	if *credit > 0 {
		*credit--
		return true
	}
	if now < h.sentAt+unpaid {
		h.at(h.sentAt + unpaid)
		return false
	}
	return true
}

// keeps returns the permits that the process has use for. Of a first call for several permits it keeps none, so that
// two processes do not each gather a part: the op asks for all of them.
func (h *Holding) keeps(c *Conditions, now int64) int64 {
	if h.waiting.first != nil || now < h.scarce || c.Exact || h.rate*h.spareFor() < 1 {
		return h.used
	}
	spare := min(max(0, h.peak-h.used)+1, max(1, h.free/(2*max(1, c.Procs)))) // a call will come soon
	return max(h.used, min(h.permits, h.used+spare))
}

// spareFor is the time (s) for whose arrivals a process may have spare permits. A spare permit that no call uses for as
// long goes back.
func (h *Holding) spareFor() float64 {
	if h.plenty {
		return 1
	}
	return 0.2
}

// smooth takes the calls since the last time into the rate. Its weights fall by e in a second.
func (h *Holding) smooth(now int64) {
	gap := float64(now-h.rateAt) / second
	if gap <= 0 {
		return
	}
	weight := math.Exp(-gap)
	h.rate = h.rate*weight + (1-weight)/max(gap, 1e-6)*float64(h.came)
	h.came, h.rateAt = 0, now
}
