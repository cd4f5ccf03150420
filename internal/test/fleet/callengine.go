package fleet

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/test/permitstest"
)

const (
	beatEvery = second // of the heartbeats
	tags      = 16     // of a hub, by default
)

// engine is a fleet of processes with the engine that ships, and Redis.
type engine struct {
	w     *callWorld
	procs []*member
	redis [tags]permitstest.Memory
}

func newEngine(w *callWorld) *engine {
	e := &engine{w: w}
	for i := range w.s.Processes {
		p := &member{e: e, id: fmt.Sprint("p", i), keys: make([]*holding, w.s.Keys)}
		p.member.Period = beatEvery
		w.After(w.rnd.Int64N(beatEvery), p.beat)
		e.procs = append(e.procs, p)
	}
	w.teach()
	return e
}

func (e *engine) acquire(c *flight) { e.procs[c.process].acquire(c) }

func (e *engine) release(c *flight) {
	p := e.procs[c.process]
	if h := p.hold(c.key); h.Release(1) {
		p.settle(h)
	}
}

// micros is Redis's time in µs.
func (e *engine) micros() int64 { return (1_000*second + e.w.Now) / 1000 }

// member is the shell around the engine of one process.
type member struct {
	e      *engine
	id     string
	member permits.Member
	lanes  [tags]lane
	keys   []*holding
}

type lane struct {
	permits.Lane[*holding]
	hears bool // an answer is taken; nothing is sent before its end
}

type holding struct {
	permits.Holding
	name  string
	tag   int
	wakes int64 // ns; the planned settle; 0: none
}

// hold returns the holding of a key.
func (p *member) hold(key int) *holding {
	if p.keys[key] == nil {
		p.keys[key] = &holding{name: fmt.Sprint("k", key), tag: key % tags}
	}
	return p.keys[key]
}

func (p *member) conditions() *permits.Conditions {
	s := p.e.w.s
	return &permits.Conditions{Standing: p.member.Standing(), Limit: s.Limit, Procs: int64(s.Processes), Period: beatEvery}
}

// acquire lets a call come. After Scenario.Wait it waits only for an answer that is on its way, as in hybrid.
func (p *member) acquire(c *flight) {
	w, h := p.e.w, p.hold(c.key)
	if h.Acquire(p.conditions(), 1, w.Now) != permits.Waits {
		w.admit(c)
		return
	}
	x := &permits.Waiter{N: 1, Caller: c}
	h.Wait(x)
	w.After(int64(w.s.Wait), func() {
		if !c.done {
			h.Hurry(x)
			p.settle(h)
		}
	})
	p.settle(h)
}

// settle does all that is due at a key.
func (p *member) settle(h *holding) {
	w, c := p.e.w, p.conditions()
	for x := h.Next(c, w.Now); x != nil; x = h.Next(c, w.Now) {
		w.admit(x.Caller.(*flight))
	}
	for x := h.Denied(c, w.Now); x != nil; x = h.Denied(c, w.Now) {
		w.deny(x.Caller.(*flight))
	}
	if h.Settle(c, w.Now) {
		p.lanes[h.tag].Add(h)
		p.send(h.tag)
	}
	if t := h.Wake(); t > 0 && (h.wakes == 0 || t < h.wakes) { // an earlier settle takes the place of a later one
		h.wakes = t
		w.At(t, func() {
			if h.wakes == t {
				h.wakes = 0
				p.settle(h)
			}
		})
	}
}

// send sends what is due to a tag.
func (p *member) send(tag int) {
	l, w := &p.lanes[tag], p.e.w
	if l.hears || !l.Due() {
		return
	}
	c := p.conditions()
	m, keys := l.Take(p.id, beatEvery, w.Now)
	names := make([]string, len(keys))
	for i, h := range keys {
		m.Ops = append(m.Ops, h.Op(c, w.Now))
		names[i] = h.name
	}
	w.ledger.sent(w.Now, int64(len(keys)), 0)
	w.exchange(func() func() {
		redis := &p.e.redis[tag]
		redis.Expire(p.e.micros())
		a, err := redis.Receive(p.e.micros(), names, m)
		if err != nil {
			panic(err) // each message is sent once, in order
		}
		return func() { p.hear(tag, m, keys, a) }
	})
}

// hear takes the answer to a message.
func (p *member) hear(tag int, m permits.Message, keys []*holding, a permits.Answer) {
	l, w, held := &p.lanes[tag], p.e.w, 0
	for i, h := range keys {
		heard := h.Hear(p.conditions(), m.Ops[i], a.Replies[i], m.Number, w.Now, w.rnd.Float64())
		held += heard.Held
		if heard.Lost {
			panic("fleet: Redis has lost something")
		}
	}
	l.Answered(m, a, held, w.Now)
	l.hears = true
	for _, h := range keys {
		p.settle(h)
	}
	l.hears = false
	p.send(tag)
}

// beat sends a heartbeat, and so on.
func (p *member) beat() {
	w, sent := p.e.w, p.e.w.Now
	pulse := p.member.Beat(sent)
	w.exchange(func() func() {
		return func() {
			if p.member.Beaten(pulse, sent, w.Now, 1, nil) {
				for _, h := range p.keys {
					if h != nil {
						h.Tell(w.Now)
						p.settle(h)
					}
				}
			}
		}
	})
	w.After(beatEvery, p.beat)
}
