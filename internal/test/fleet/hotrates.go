package fleet

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/ratelease"
)

// hotRates leases rates by the protocol of the product, with Redis's side in Go.
type hotRates struct {
	w       *hotWorld
	terms   ratelease.Terms
	procs   []ratesProcess
	state   ratelease.State // in Redis
	records []ratelease.Record
	number  int64
}

type ratesProcess struct {
	ratelease.Hand
	waits []int64 // units of waiting calls
}

func newHotRates(w *hotWorld) *hotRates {
	l := w.s.Limit
	h := &hotRates{
		w: w, terms: ratelease.Terms{Rate: int64(perSecond(l) * ratelease.Micro), Burst: l.Burst * ratelease.Micro},
		procs: make([]ratesProcess, w.s.Processes), records: make([]ratelease.Record, w.s.Processes),
	}
	for i := range h.procs {
		w.After(w.rnd.Int64N(ratelease.LookEvery), func() { h.look(i) })
	}
	return h
}

// look is what a process does once a second.
func (h *hotRates) look(i int) {
	if p := &h.procs[i]; p.Idle(h.conditions(), h.now()) {
		h.exchange(i, p.Leave)
	}
	h.w.After(ratelease.LookEvery, func() { h.look(i) })
}

func (h *hotRates) conditions() *ratelease.Conditions {
	return &ratelease.Conditions{Terms: h.terms, Procs: int64(len(h.procs)), Wait: int64(time.Hour)}
}

func (h *hotRates) now() int64 { return h.w.Now + second } // a Hand knows no time 0

func (h *hotRates) call(i int) {
	p := &h.procs[i]
	action, exchange := p.Call(h.conditions(), 1, h.now())
	switch action {
	case ratelease.Admit:
		h.w.admit(i)
	case ratelease.Wait:
		h.w.report.Waits++
		p.waits = append(p.waits, 1)
	}
	if exchange {
		h.exchange(i, p.Op)
	}
}

func (h *hotRates) exchange(i int, begin func(c *ratelease.Conditions, want, number, now int64) ratelease.Op) {
	p, sent := &h.procs[i], h.now()
	h.number++
	op := begin(h.conditions(), int64(len(p.waits)), h.number, sent)
	var a ratelease.Answer
	h.w.exchange(&h.w.redis, func() {
		h.state, h.records[i], a, _ = ratelease.Exchange(h.state, h.records[i], op, (hotEpoch+h.w.Now)/1000)
	}, func() {
		p.Hear(op, a, sent, h.now(), h.w.rnd.Float64())
		for _, n := range p.waits {
			if p.Take(n, h.now()) {
				h.w.admit(i)
			}
		}
		p.Served()
		p.waits = p.waits[:0]
	})
}
