package permits

import "slices"

// Op returns the op of the holding for the message that is sent now. Permits that it does not keep are not used until
// the answer.
func (h *Holding) Op(c *Conditions, now int64) Op {
	h.smooth(now)
	live := h.live(c, now)
	keep := h.used
	if live {
		keep = h.keeps(c, now)
	}
	h.permits = min(h.permits, keep)
	h.proven = h.permits
	if !live {
		h.proven = 0
	}
	op := Op{
		Limit: c.Limit, Keep: keep, Had: h.had, Procs: max(1, c.Procs), Rejoin: !live && h.number > 0, Reset: h.resets,
		Claims: h.claims[:min(len(h.claims), MaxHolders)],
	}
	if c.Live(now) {
		if w := h.waiting.first; w != nil {
			op.First, op.Want = w.N, h.waiting.need
			h.waiting.ask()
		}
		if now >= h.scarce && !c.Exact {
			op.Spare = int64(h.rate * h.spareFor())
		}
	}
	h.had = min(h.had, keep)
	h.queued, h.flying, h.tells, h.resets = false, true, false, false
	h.sentAt, h.sentIn, h.wake = now, c.Session, 0
	return op
}

// Lost notes that an op got no answer. It reports whether the caller must add the key to its lane again.
func (h *Holding) Lost(op Op) bool {
	h.flying, h.tells, h.resets = false, true, h.resets || op.Reset
	h.waiting.unask()
	if h.queued {
		return false
	}
	h.queued = true
	return true
}

// Heard is the effect of an answer.
type Heard struct {
	Held int  // 1: the process holds permits of the key now; -1: it holds none any more
	Lost bool // Redis had lost something: the caller tells Member.Loss
}

// Hear takes the answer to an op of a message's number. jitter is in [0, 1).
func (h *Holding) Hear(c *Conditions, op Op, r Reply, number, now int64, jitter float64) Heard {
	e := Heard{Lost: r.Lost}
	if h.booked > 0 {
		e.Held--
	}
	if r.Booked > 0 {
		e.Held++
	}
	h.flying = false
	h.waiting.tell()
	h.claims = h.claims[len(op.Claims):]
	h.tells = h.tells || len(h.claims) > 0
	if len(h.claims) == 0 {
		h.claims = nil
	}
	h.booked, h.had, h.number, h.free, h.plenty = r.Booked, r.Booked, number, r.Free, r.Free >= op.Limit/4
	h.permits, h.session = r.Usable, h.sentIn
	h.learns = 0
	if r.Learns > 0 { // permits of calls that were admitted without Redis may be those of a process that has not told them
		h.permits, h.learns = min(h.permits, h.proven), now+r.Learns*1000
	}
	if h.session != c.Session || !c.Live(now) || op.Limit != c.Limit { // to be told again
		h.permits = 0
		h.Tell(now)
	}
	if r.Scarce {
		h.scarce = now + second
	}
	h.leaves = 0
	if r.Starving {
		h.leaves = now + Starves*1000
	}
	granted := r.Booked - op.Keep
	h.askAt, h.giveAt, h.tellAt = now, now, now+int64(tellAgain*(0.75+0.25*jitter))
	if gap := h.gap(); gap > 0 {
		h.askAt, h.giveAt = now+int64(gap*(0.75+0.5*jitter)), now+int64(gap)
	}
	h.askAt = max(h.askAt, h.learns)
	h.refused(op, r, granted < op.Want, now, jitter)
	return e
}

// gap returns the time (ns) until the next ask and the next give-back, in which several calls come that can share an
// op. It grows evenly with the calls: a process with few calls would save few ops by a wait, and its waiting calls need
// the permits of others.
func (h *Holding) gap() float64 {
	alone := 1.5 // calls in a gap too short for a wait
	if h.plenty {
		alone = 1 // so that a process sends less where all calls are admitted
	}
	return together - alone*second/h.rate
}

// refused plans the next ask of calls that were refused, and notes the holders.
func (h *Holding) refused(op Op, r Reply, refused bool, now int64, jitter float64) {
	if !refused {
		h.retry, h.holders, h.heard = 0, nil, nil
		return
	}
	h.retry = min(max(2*h.retry, firstRetry), lastRetry)
	h.retryAt = now + int64(float64(h.retry)*(0.75+0.5*jitter))
	heard := make([]int64, len(r.Holders))
	for i, holder := range r.Holders {
		heard[i] = now
		if before := slices.Index(h.holders, holder); before >= 0 {
			heard[i] = h.heard[before]
		}
	}
	h.holders, h.heard, h.holdersAt = r.Holders, heard, now
}

// Holders returns the holders that the last refusal named, for Member.Suspect.
func (h *Holding) Holders() []Claim { return h.holders }

// Accuse takes the holdings of dead processes off with the next op. It is called after each heartbeat for a holding
// that was refused, until it reports that the refusal is too old. dead reports whether a process is dead by a look that
// was sent after the message of the holding was heard of. An earlier look may have missed the heartbeat with which the
// holder came back before that message: its permits would be taken off while its calls run.
func (h *Holding) Accuse(c *Conditions, now int64, dead func(process string, heard int64) bool) (more bool) {
	if now-h.holdersAt > suspected(c.Period) {
		h.holders = nil
	}
	if len(h.holders) == 0 {
		return false
	}
	before := len(h.claims)
	for i, holder := range h.holders {
		if dead(holder.Process, h.heard[i]) {
			h.claims = append(h.claims, holder)
		}
	}
	if len(h.claims) > before {
		h.holders, h.tells = nil, true
	}
	return h.holders != nil
}
