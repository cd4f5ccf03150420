package leased

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// lane sends the exchanges of the keys of one tag, one message at a time, in a goroutine that runs while there are any.
type lane struct {
	rates *Rates
	tag   int

	mu    sync.Mutex // guards the fields below
	queue []*entry   // each once: entry.queued
	runs  bool       // the goroutine runs
}

// message is a message in flight.
type message struct {
	entries []*entry
	ops     []ratelease.Op
	keys    []string
	left    []bool // the op gives everything back
	sent    int64  // ns
}

// add sends an exchange of a key.
func (p *lane) add(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, e)
	if p.runs {
		return
	}
	if !p.rates.env.Begin() { // closed: its waiting calls hear of that
		return
	}
	p.runs = true
	go p.run()
}

// run sends messages until nothing is due.
func (p *lane) run() {
	defer p.rates.env.End()
	for {
		p.mu.Lock()
		n := min(len(p.queue), wire.MaxRates)
		if n == 0 {
			p.runs = false
			p.mu.Unlock()
			return
		}
		due := p.queue[:n:n]
		p.queue = p.queue[n:]
		p.mu.Unlock()
		p.send(due)
	}
}

// send sends one message.
func (p *lane) send(due []*entry) {
	env := &p.rates.env
	call, ok := env.Breaker(p.tag).Begin()
	if !ok || env.Context.Err() != nil {
		if ok {
			call.End(0, context.Canceled)
		}
		for _, e := range due {
			e.shard.mu.Lock()
			e.queued = false
			e.forsake(env.Clock.Now())
			e.shard.mu.Unlock()
		}
		return
	}
	m := p.take(due)
	env.Clock.Begin()
	defer env.Clock.End()
	given := env.Engine.Timeout() + env.Engine.Late()
	ctx, cancel := context.WithTimeout(env.Context, given)
	began := time.Now()
	answers, err := env.Runner.Rates(ctx, m.keys, m.ops)
	took := time.Since(began)
	cancel()
	p.rates.Messages.Add(1)
	p.rates.Ops.Add(uint64(len(due)))
	blamed := err
	switch {
	case err == nil:
	case env.Context.Err() != nil:
		blamed = context.Canceled // closing: no evidence about Redis
	case errors.Is(err, wire.ErrRefused):
		blamed = nil // Redis can serve
	default:
		p.rates.Failed.Add(1)
	}
	call.End(env.Engine.Outcome(given, took, blamed))
	if errors.Is(err, wire.ErrRefused) {
		env.Log.Event(tell.MsgRates, slog.Int("tag", p.tag), slog.Int("ops", len(m.ops)), slog.Any("error", err))
	}
	p.heard(m, answers)
}

// take begins the exchanges of a message.
func (p *lane) take(due []*entry) message {
	env, process := &p.rates.env, *p.rates.process.Load()
	m := message{entries: due, sent: env.Clock.Now()}
	for _, e := range due {
		l := e.lim
		e.shard.mu.Lock()
		e.queued = false
		c := e.conditions()
		begin := e.Op
		if e.leaving {
			begin = e.Leave
		}
		m.left = append(m.left, e.leaving)
		e.leaving = e.leaving && l.control.Closed.Load() // of Drain, until there is an answer
		m.ops = append(m.ops, begin(&c, e.want(), p.rates.number.Add(1), m.sent))
		e.shard.mu.Unlock()
		l.Count.Ops.Add(1)
		m.keys = append(m.keys, env.Names.Rate(e.tag, l.Name, e.key), env.Names.Lease(e.tag, process, l.Name, e.key))
	}
	return m
}

// heard takes the answers to a message; none: there was no answer.
func (p *lane) heard(m message, answers []wire.RateAnswer) {
	now, stale := p.rates.env.Clock.Now(), false
	for i, e := range m.entries {
		e.shard.mu.Lock()
		if answers == nil || answers[i].Stale {
			stale = stale || answers != nil
			e.Lost(now, rand.Float64())
			e.forsake(now)
		} else {
			owed := e.Owes()
			e.Hear(m.ops[i], answers[i].Answer, m.sent, now, rand.Float64())
			e.lim.Count.Acked.Add(owed - e.Owes())
			e.began = false
			if !m.left[i] && !e.gone {
				e.lim.listLive(e)
			}
			if a := answers[i]; a.Level < 0 {
				e.lim.Count.Debt((ratelease.Micro - 1 - a.Level) / ratelease.Micro)
			}
			e.serve(m.left[i] || m.ops[i].Reset, now)
		}
		again := len(e.waits) > 0 && !e.queued // of Drain and Reset: for the next exchange
		e.queued = e.queued || again
		e.shard.mu.Unlock()
		if again {
			p.add(e)
		}
	}
	if stale {
		p.rates.rename()
		p.rates.Renames.Add(1)
		p.rates.env.Log.Event(tell.MsgRenamed, slog.Int("tag", p.tag))
	}
}
