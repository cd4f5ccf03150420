package main

import "math"

// process admits calls from the permits that it holds.
type process struct {
	w        *world
	id       int
	holdings map[int]*holding
	due      []int // keys with an op to send, in order
	queued   map[int]bool
	flying   *message
	number   uint64 // of the last message
	after    uint64 // of the last answered one
	epoch    float64
	gone     bool    // killed
	frozen   float64 // until

	// Of members.
	alive    float64           // when the last answered heartbeat was sent
	session  uint64            // counts the times that a heartbeat came too late
	broken   bool              // it is too late now
	losses   int               // of the fleet, heard
	tells    int               // own losses to tell
	suspects map[int]suspicion // by key: the holders when this process was refused
	looks    map[int]look      // at processes that hold a key at which this process was refused
}

// holding is a process's part of a key.
type holding struct {
	key     int
	permits int64 // usable; calls in flight use some of them
	used    int64 // calls in flight
	booked  int64 // by the last answer
	known   uint64
	gen     int64
	born    float64
	ends    float64 // of renewals: nothing is admitted after
	session uint64  // in which the holding was told
	claims  map[int]uint64
	waiting []waiter
	askAt   float64 // ask again then
	giveAt  float64
	scarce  float64 // until
	peak    int64   // of calls in flight since the last trim
	rate    float64 // arrivals a second, smoothed
	asks    int     // calls that have not paid for an ask
	gives   int     // ended calls that have not paid for a give-back
	plenty  bool    // a quarter of the permits was free at the last answer
	free    int64   // at the last answer
	arrived float64
	tick    bool // a trim or renewal is due later
	ended   bool
	over    int64 // calls in flight that were there when the holding ended
}

type waiter struct {
	until float64
	start func()
}

func newProcess(w *world, id int) *process {
	p := &process{w: w, id: id, holdings: map[int]*holding{}, queued: map[int]bool{}, suspects: map[int]suspicion{}}
	if w.design == members {
		p.beat(w.rnd.Float64() * w.period)
	}
	return p
}

func (p *process) holding(key int) *holding {
	h := p.holdings[key]
	if h == nil {
		h = &holding{key: key, session: p.session, ends: math.Inf(-1)}
		p.holdings[key] = h
	}
	return h
}

// live reports whether the process may use permits that no call uses yet.
func (p *process) live(h *holding) bool {
	if p.w.design == renewals {
		return p.w.now < h.ends
	}
	if !p.broken && p.w.now >= p.lasts() {
		p.broken = true
	}
	return !p.broken && h.session == p.session
}

// lasts returns the time until which the process takes itself as alive.
func (p *process) lasts() float64 {
	if p.w.mutant == "late" {
		return p.alive + 2*p.w.life()
	}
	return p.counts()
}

// counts returns the time until which others certainly count the process as alive.
func (p *process) counts() float64 { return p.alive + p.w.life() - margin }

// excuse notes the calls that outlive the holding. They are the case that the guarantee names.
func (p *process) excuse(h *holding) {
	ended := p.w.now >= h.ends
	if p.w.design == members {
		ended = p.w.now >= p.counts()
	}
	if ended && !h.ended {
		h.over = h.used
	}
	h.ended, h.over = ended, min(h.over, h.used)
}

// acquire runs start now, or within maxWait, or never.
func (p *process) acquire(key int, start func()) {
	w, h := p.w, p.holding(key)
	gap := w.now - h.arrived
	h.arrived, h.asks = w.now, min(h.asks+1, mostCredit)
	weight := math.Exp(-gap)
	h.rate = h.rate*weight + (1-weight)/max(gap, 1e-6)
	if len(h.waiting) == 0 && h.used < h.permits && p.live(h) {
		p.admit(h, start)
		return
	}
	h.waiting = append(h.waiting, waiter{w.now + w.maxWait, start})
	p.ask(h)
}

func (p *process) admit(h *holding, start func()) {
	h.used++
	h.peak = max(h.peak, h.used)
	start()
}

// serve admits waiting calls, first come, first served.
func (p *process) serve(h *holding) {
	for len(h.waiting) > 0 {
		first := h.waiting[0]
		if first.until < p.w.now {
			h.waiting = h.waiting[1:]
			continue
		}
		if h.used >= h.permits || !p.live(h) {
			return
		}
		h.waiting = h.waiting[1:]
		p.admit(h, first.start)
	}
}

// ask queues an op for waiting calls.
func (p *process) ask(h *holding) {
	p.serve(h)
	if len(h.waiting) == 0 || h.asks < 1 {
		return
	}
	if p.w.now >= h.askAt {
		h.asks--
		p.queue(h)
		return
	}
	p.w.at(h.askAt, func() { p.later(func() { p.askAgain(h) }) })
}

func (p *process) askAgain(h *holding) {
	p.serve(h)
	if len(h.waiting) > 0 && p.w.now >= h.askAt && h.asks >= 1 && !p.queued[h.key] {
		h.asks--
		p.queue(h)
	}
}

// release ends a call.
func (p *process) release(key int) {
	h := p.holding(key)
	p.excuse(h)
	h.used--
	h.over, h.gives = min(h.over, h.used), min(h.gives+1, mostCredit)
	p.serve(h)
	p.giveBack(h)
}

// keeps returns the permits that the process has use for.
func (p *process) keeps(h *holding) int64 {
	if p.w.now < h.scarce {
		return min(h.permits, h.used+int64(len(h.waiting)))
	}
	need := h.used
	if h.rate*h.spareFor() >= 1 { // a call will come soon
		need = h.used + min(max(0, h.peak-h.used)+1, max(1, h.free/int64(2*p.w.rules.procs)))
	}
	return max(h.used, min(h.permits, need))
}

// spareFor is the time for whose arrivals a process may have spare permits. A spare permit that no call uses for as long goes back.
func (h *holding) spareFor() float64 {
	if h.plenty {
		return 1
	}
	return 0.2
}

// mostCredit bounds the asks and give-backs for which calls of before have paid. Each call pays for one of both, so a call never
// costs more ops than the two of a sorted set.
const mostCredit = 8

// giveBack returns permits: at once where they are scarce or seldom used, else at the next tick.
func (p *process) giveBack(h *holding) {
	if h.permits <= p.keeps(h) || h.gives < 1 {
		return
	}
	switch {
	case p.w.now < h.scarce || h.rate*h.spareFor() < 1:
		if p.w.now >= h.giveAt {
			h.gives--
			p.queue(h)
			return
		}
		p.tick(h, h.giveAt)
	default:
		p.tick(h, p.w.now+h.spareFor())
	}
}

func (p *process) tick(h *holding, t float64) {
	if h.tick {
		return
	}
	h.tick = true
	p.w.at(t, func() {
		p.later(func() {
			h.tick = false
			keeps := p.keeps(h)
			h.peak = h.used
			if h.permits > keeps && h.gives >= 1 {
				h.gives--
				p.queue(h)
			}
		})
	})
}

// later runs f when the process runs again.
func (p *process) later(f func()) {
	switch {
	case p.gone:
	case p.w.now < p.frozen:
		p.w.at(p.frozen, func() { p.later(f) })
	default:
		f()
	}
}

// queue sends an op for a key with the next message.
func (p *process) queue(h *holding) {
	if !p.queued[h.key] {
		p.queued[h.key] = true
		p.due = append(p.due, h.key)
	}
	p.send()
}

// most is the most ops of a message.
const most = 64

// send sends what is due. A process has one message in flight.
func (p *process) send() {
	w := p.w
	if p.flying != nil || len(p.due) == 0 {
		return
	}
	p.number++
	m := &message{proc: p.id, number: p.number, after: p.after, knows: p.epoch}
	n := min(most, len(p.due))
	for _, key := range p.due[:n] {
		delete(p.queued, key)
		m.ops = append(m.ops, p.op(p.holding(key)))
	}
	p.due = append([]int(nil), p.due[n:]...)
	p.flying = m
	sent, session := w.now, p.session
	if w.measuring {
		w.messages++
		w.ops += int64(len(m.ops))
	}
	p.transmit(m, sent, session)
}

func (p *process) transmit(m *message, sent float64, session uint64) {
	w := p.w
	w.call(func() func() {
		a, ok := w.server.receive(*m)
		if !ok {
			return nil
		}
		return func() { p.later(func() { p.hear(m, a, sent, session) }) }
	})
	w.after(0.25, func() {
		p.later(func() {
			if p.flying == m {
				p.transmit(m, sent, session)
			}
		})
	})
}

// op tells what the process keeps. It does not use more until the answer.
func (p *process) op(h *holding) op {
	for len(h.waiting) > 0 && h.waiting[0].until < p.w.now {
		h.waiting = h.waiting[1:]
	}
	live := p.live(h)
	keep := h.used
	if live {
		keep = p.keeps(h)
	}
	if p.w.mutant != "give" {
		h.permits = keep
	}
	o := op{
		proc: p.id, key: h.key, keep: keep, want: max(0, int64(len(h.waiting))-(keep-h.used)), had: h.booked,
		known: h.known, rejoins: !live && h.known != 0, gen: h.gen, born: h.born, claims: h.claims,
	}
	h.claims = nil
	if p.w.now >= h.scarce {
		o.spare = int64(h.rate * h.spareFor())
	}
	return o
}

// hear takes an answer.
func (p *process) hear(m *message, a answered, sent float64, session uint64) {
	if p.flying != m {
		return
	}
	w := p.w
	p.after, p.epoch = m.number, a.epoch
	for i, r := range a.replies {
		o, h := m.ops[i], p.holding(m.ops[i].key)
		p.excuse(h)
		h.booked, h.known, h.gen, h.born = r.keep+r.granted, m.number, r.gen, r.born
		h.permits = r.usable + r.granted
		h.ends = sent + w.life() - margin
		if w.mutant == "answer" {
			h.ends = w.now + w.life() + w.period
		}
		h.session = session
		if w.design == members && (p.session != session || p.broken) {
			h.permits = min(h.permits, h.used) // to be told again
		}
		h.free = r.free
		h.plenty = r.free >= w.permits/4
		if r.scarce {
			h.scarce = w.now + 1
		}
		if r.lost {
			p.tells++
		}
		h.askAt, h.giveAt = w.now, w.now
		if h.rate*w.again >= 1 { // several calls can share an op
			h.askAt, h.giveAt = w.now+w.again*(0.75+0.5*w.rnd.Float64()), w.now+w.again
		}
		if r.holders != nil && o.want > 0 {
			p.suspects[h.key] = suspicion{r.holders, w.now}
		}
		p.ask(h)
		p.giveBack(h)
		if w.design == renewals && h.booked > 0 {
			p.renew(h, m.number)
		}
		if h.booked == 0 && h.used == 0 && len(h.waiting) == 0 && h.rate < 1 && !h.tick && !p.queued[h.key] {
			delete(p.holdings, h.key)
		}
	}
	p.flying = nil // only now, so that no op is made of a holding whose answer is not yet in it
	p.send()
}

// renew sends an op a period after the last one.
func (p *process) renew(h *holding, number uint64) {
	p.w.after(p.w.period*(0.9+0.2*p.w.rnd.Float64()), func() {
		p.later(func() {
			if h.known == number && h.booked > 0 {
				p.queue(h)
				h.peak = h.used
			}
		})
	})
}
