package permits_test

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// process is the shell around the engine that package hybrid is in the product.
type process struct {
	w       *world
	id      string
	ids     int
	index   int
	member  permits.Member
	lane    permits.Lane[int]
	keys    []*holding
	flight  uint64 // number of the attempt in flight; others are dropped
	gone    bool
	frozen  int64 // ns; until
	flying  *permits.Message
	carried []int // keys of it
	limit   int64
	sending bool  // a message is built
	sent    int64 // ns; the last message
	heard   int64 // ns; the last answer
	silent  int64 // ns; the time without an answer before the first message after a failover
	first   int64 // the number of that message
	unheard bool  // it got no answer
	excused bool  // its calls have outlived a cut-off
	session uint64
}

type holding struct {
	permits.Holding
	key    int
	wakes  int64
	sent   int64 // ns; the last op
	lists  bool  // it waits for the heartbeats of suspects
	queued []*call
	calls  map[*call]bool
}

func newProcess(w *world, index int) *process {
	p := &process{w: w, index: index, id: fmt.Sprintf("p%d", index), limit: w.limit, member: permits.Member{Period: period}}
	for k := range w.keysCount {
		p.keys = append(p.keys, &holding{key: k, calls: map[*call]bool{}})
	}
	p.beat(int64(w.rnd.Float64() * float64(period)))
	return p
}

func (p *process) conditions() *permits.Conditions {
	c := &permits.Conditions{Standing: p.member.Standing(), Limit: p.limit, Procs: int64(p.w.setting.procs), Period: period}
	if p.w.share {
		c.Share = permits.Share(p.limit, c.Procs)
	}
	if p.w.mutant == "late" {
		c.Until += 4 * period
	}
	return c
}

// later runs f when the process runs again.
func (p *process) later(f func()) {
	switch {
	case p.gone:
	case p.w.Now < p.frozen:
		p.w.At(p.frozen, func() { p.later(f) })
	default:
		f()
	}
}

// excuse stops counting the calls that outlive a cut-off. They are the case that the guarantee names.
func (p *process) excuse() {
	ended := !p.member.Standing().Live(p.w.Now)
	if ended && !p.excused {
		for _, h := range p.keys {
			for c := range h.calls {
				p.w.drop(c)
			}
		}
	}
	p.excused = ended
}

// call lets a call come for n permits.
func (p *process) call(c *call) {
	w, h := p.w, p.keys[c.key]
	w.arrived++
	c.proc = p
	switch how := h.Acquire(p.conditions(), c.waiter.N, w.Now); how {
	case permits.Waits:
		c.waiting = true
		h.queued = append(h.queued, c)
		h.Wait(&c.waiter)
		w.After(w.patience, func() {
			p.later(func() {
				if h.Leave(&c.waiter) {
					p.dequeue(h, &c.waiter)
				}
				p.settle(h)
			})
		})
		p.settle(h)
	default:
		p.start(h, c, how)
		if how == permits.Fallback {
			p.settle(h)
		}
	}
}

func (p *process) start(h *holding, c *call, how permits.Admission) {
	h.calls[c] = true
	p.w.starts(c, how)
	lasts := c.lasts
	if p.w.Now < span+calm {
		lasts = max(0, min(lasts, span+second-p.w.Now))
	}
	p.w.After(lasts, func() { p.later(func() { p.end(c) }) })
}

func (p *process) end(c *call) {
	if c.ended {
		return
	}
	c.ended = true
	p.excuse()
	h := p.keys[c.key]
	delete(h.calls, c)
	p.w.drop(c)
	if h.Release(c.waiter.N) {
		p.settle(h)
	}
}

func (p *process) dequeue(h *holding, w *permits.Waiter) *call {
	for i, c := range h.queued {
		if &c.waiter == w {
			h.queued = append(h.queued[:i:i], h.queued[i+1:]...)
			delete(p.w.keys[h.key].stuck, c)
			c.waiting = false
			return c
		}
	}
	panic("a call that did not wait was admitted")
}

// settle does all that is due at a key.
func (p *process) settle(h *holding) {
	w, c := p.w, p.conditions()
	for x := h.Next(c, w.Now); x != nil; x = h.Next(c, w.Now) {
		how := permits.Held
		if x.Fallback {
			how = permits.Fallback
		}
		p.start(h, p.dequeue(h, x), how)
	}
	for x := h.Denied(c, w.Now); x != nil; x = h.Denied(c, w.Now) {
		p.dequeue(h, x)
	}
	if h.Settle(c, w.Now) {
		w.asked++
		p.lane.Add(h.key)
		p.send()
	}
	if t := h.Wake(); t > 0 && t != h.wakes && w.mutant != "wake" {
		h.wakes = t
		w.At(t, func() {
			p.later(func() {
				if h.wakes == t {
					h.wakes = 0
					p.settle(h)
				}
			})
		})
	}
}

// send sends what is due.
func (p *process) send() {
	w := p.w
	if p.sending || !p.lane.Due() {
		return
	}
	p.flight++
	flight := p.flight
	c := p.conditions()
	m, keys := p.lane.Take(p.id, period, w.Now)
	names := make([]string, len(keys))
	for i, k := range keys {
		h := p.keys[k]
		h.sent = w.Now
		before, had := h.Usable(), h.SaysItHad()
		op := h.Op(c, w.Now)
		names[i] = w.keys[k].name
		switch w.mutant {
		case "give":
			h.UseWhatItGives(before)
		case "had":
			op.Had = had
		case "rejoin":
			op.Rejoin = false
		case "first":
			op.First = min(op.First, 1)
		}
		m.Ops = append(m.Ops, op)
	}
	if p.flying, p.carried = &m, keys; p.sent < w.failed {
		p.silent, p.first = w.Now-p.heard, m.Number
	}
	p.sent = w.Now
	w.exchange(func() func() {
		a, err := w.receive(names, m)
		if errors.Is(err, permits.ErrStale) {
			return nil
		}
		return func() {
			p.later(func() {
				if p.flight == flight {
					p.flight++
					p.hear(m, keys, a)
				}
			})
		}
	})
	w.After(w.timeout, func() {
		p.later(func() {
			if p.flight == flight {
				p.flight++
				p.lost(m, keys)
			}
		})
	})
}

func (p *process) lost(m permits.Message, keys []int) {
	p.flying, p.unheard = nil, p.unheard || m.Number == p.first
	for i, k := range keys {
		if p.keys[k].Lost(m.Ops[i]) {
			p.lane.Add(k)
		}
	}
	p.lane.Lost()
	p.send()
}

func (p *process) hear(m permits.Message, keys []int, a permits.Answer) {
	w, held := p.w, 0
	p.flying, p.heard = nil, w.Now
	for i, k := range keys {
		h, r := p.keys[k], a.Replies[i]
		if w.mutant == "proven" {
			r.Learns = 0
		}
		heard := h.Hear(p.conditions(), m.Ops[i], r, m.Number, w.Now, w.rnd.Float64())
		switch w.mutant {
		case "usable":
			h.UseAll()
		case "session":
			h.TakeSession(p.conditions())
		}
		held += heard.Held
		if heard.Lost {
			w.losses++
			p.member.Loss()
		}
		if holders := h.Holders(); len(holders) > 0 {
			p.member.Suspect(holders, w.Now)
			h.lists = true
		}
	}
	p.lane.Answered(m, a, held, w.Now)
	p.sending = true
	for _, k := range keys {
		p.settle(p.keys[k])
	}
	p.sending = false
	p.send()
}

// tell tells all holdings again.
func (p *process) tell() {
	at := p.member.Touched()
	if p.w.mutant == "touched" {
		at = p.w.Now
	}
	for _, h := range p.keys {
		h.Tell(at)
		p.settle(h)
	}
}

// adapt gives the process another limit.
func (p *process) adapt(limit int64) {
	p.limit = limit
	for _, h := range p.keys {
		if p.w.mutant != "adapt" {
			h.Adapt(p.w.Now)
		}
		p.settle(h)
	}
}

// rename gives the process another identity.
func (p *process) rename() {
	p.excuse()
	p.ids++
	before := p.id
	p.id = fmt.Sprintf("p%dx%d", p.index, p.ids)
	p.member.Rename()
	p.excuse()
	for _, h := range p.keys {
		h.Rename(before)
	}
	p.lane.Rename()
	if p.flying != nil { // its answer is dropped
		p.flight++
		p.lost(*p.flying, p.carried)
	}
}
