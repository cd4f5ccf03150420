package inflight

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// lane sends the messages about the permits of one tag, one at a time, in a goroutine that runs while there are
// any.
type lane struct {
	members *Members
	tag     int
	wakeup  // guarded by the waker

	mu     sync.Mutex // guards the fields below
	lane   permits.Lane[*entry]
	runs   bool         // the goroutine runs
	flight uint64       // the attempt in flight; the answers to others are dropped
	keys   []*entry     // of the message in flight
	ops    []permits.Op // likewise
	pause  int64        // ns; the time between two attempts that fail
	after  int64        // ns; nothing is sent before
	stale  int          // attempts that Redis called stale, without another answer between them
}

const (
	// shortPause and longPause are the least and the largest time (ns) between two attempts that fail.
	shortPause, longPause = int64(50 * time.Millisecond), int64(time.Second)
	// staleMost is the number of messages in turn that Redis calls stale, after which another process must have this
	// one's identity. A single one is the repetition of a message whose answer was lost.
	staleMost = 3
)

// add sends an op for a key.
func (p *lane) add(e *entry) {
	p.mu.Lock()
	p.lane.Add(e)
	p.mu.Unlock()
	p.start()
}

// again implements sleeper: a pause is over.
func (p *lane) again(int64) { p.start() }

// start starts the goroutine if there is something to send.
func (p *lane) start() {
	h := &p.members.env
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs || !p.lane.Due() || !h.Begin() {
		return
	}
	p.runs = true
	go p.run()
}

// run sends messages until nothing is due, Redis is away, or the hub closes.
func (p *lane) run() {
	h := &p.members.env
	defer h.End()
	for p.send(h) {
	}
}

// send sends one message. It reports false, and the goroutine ends, if it cannot.
func (p *lane) send(h *Env) bool {
	call, ok := h.Breaker(p.tag).Begin()
	m, keys, flight, names := p.take(h, ok)
	if keys == nil {
		if ok {
			call.End(0, context.Canceled)
		}
		return false
	}
	h.Clock.Begin()
	defer h.Clock.End()
	given := h.Engine.Timeout() + h.Engine.Late()
	ctx, cancel := context.WithTimeout(h.Context, given)
	sent := time.Now()
	answer, err := h.Runner.Permits(ctx, h.Names.Holdings(p.tag), names, m)
	took := time.Since(sent)
	cancel()
	p.members.Messages.Add(1)
	p.members.Ops.Add(uint64(len(keys)))
	blamed := err
	switch {
	case err == nil:
	case h.Context.Err() != nil:
		blamed = context.Canceled // closing: no evidence about Redis
	case errors.Is(err, wire.ErrRefused) || errors.Is(err, permits.ErrStale):
		blamed = nil // Redis can serve
	default:
		p.members.Failed.Add(1)
	}
	call.End(h.Engine.Outcome(given, took, blamed))
	if err != nil {
		p.lost(h, m, keys, flight, err)
	} else {
		p.hear(h, m, keys, flight, answer)
	}
	return true
}

// take begins a message. It returns no keys if nothing may be sent now; the goroutine then ends. may reports whether
// the breaker permits a message.
func (p *lane) take(h *Env, may bool) (m permits.Message, keys []*entry, flight uint64, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := h.Clock.Now()
	if !may {
		p.delay(now)
	}
	if h.Context.Err() != nil || !p.lane.Due() || now < p.after {
		p.runs = false
		if p.lane.Due() && h.Context.Err() == nil {
			p.members.waker.plan(p, p.after)
		}
		return m, nil, 0, nil
	}
	m, keys = p.lane.Take(p.members.identity(), int64(member.PulseEvery), now)
	for _, e := range keys {
		e.shard.mu.Lock()
		c := e.lim.conditions(e, now)
		op := e.Op(&c, now)
		if op.Reset {
			e.resets, e.sent = nil, e.resets
		}
		m.Ops = append(m.Ops, op)
		e.shard.mu.Unlock()
		e.lim.Count.Ops.Add(1)
		names = append(names, h.Names.Held(e.tag, e.lim.Name, e.key))
	}
	p.flight++
	p.keys, p.ops = keys, m.Ops
	return m, keys, p.flight, names
}

// delay plans the next attempt after one that failed.
func (p *lane) delay(now int64) {
	p.pause = min(max(2*p.pause, shortPause), longPause)
	p.after = now + clock.Jitter(p.pause)
}

// lost notes that a message had no answer.
func (p *lane) lost(h *Env, m permits.Message, keys []*entry, flight uint64, err error) {
	p.mu.Lock()
	renames := false
	if p.flight == flight {
		p.forsake()
		p.delay(h.Clock.Now())
		if errors.Is(err, permits.ErrStale) {
			p.stale++
			renames = p.stale >= staleMost
		}
	}
	p.mu.Unlock()
	if errors.Is(err, wire.ErrRefused) {
		h.Log.Event(tell.MsgPermits, slog.Int("tag", p.tag), slog.Int("ops", len(m.Ops)), slog.Any("error", err))
	}
	if renames {
		p.members.Renames.Add(1)
		h.Renamed(p.tag)
	}
	now := h.Clock.Now()
	for _, e := range keys { // calls that wait may use the fallback now
		e.again(now)
	}
}

// forsake ends the message in flight without an answer. The lane is locked.
func (p *lane) forsake() {
	for i, e := range p.keys {
		e.shard.mu.Lock()
		if e.Lost(p.ops[i]) {
			p.lane.Add(e)
		}
		e.resets, e.sent = append(e.resets, e.sent...), nil
		e.shard.mu.Unlock()
	}
	p.lane.Lost()
	p.flight++
	p.keys, p.ops = nil, nil
}

// rename begins the messages of a new identity. The lane is locked.
func (p *lane) rename() {
	p.lane.Rename()
	p.stale = 0
	if p.keys != nil { // its answer is dropped
		p.forsake()
	}
}

// hear takes the answer to a message.
func (p *lane) hear(h *Env, m permits.Message, keys []*entry, flight uint64, a permits.Answer) {
	p.mu.Lock()
	if p.flight != flight { // the process has another identity since
		p.mu.Unlock()
		return
	}
	p.flight++
	p.keys, p.ops, p.pause, p.after, p.stale = nil, nil, 0, 0, 0
	now, held := h.Clock.Now(), 0
	for i, e := range keys {
		held += e.hear(m.Ops[i], a.Replies[i], m.Number, now)
	}
	p.lane.Answered(m, a, held, now)
	p.mu.Unlock()
	for _, e := range keys {
		e.again(now)
	}
}

// hear takes the answer to an op. It returns the change of the number of keys with permits.
func (e *entry) hear(op permits.Op, r permits.Reply, number, now int64) int {
	m := e.lim.members
	e.shard.mu.Lock()
	c := e.lim.conditions(e, now)
	heard := e.Hear(&c, op, r, number, now, chance())
	holders := e.Holders()
	done := e.sent
	e.sent = nil
	e.shard.mu.Unlock()
	for _, d := range done {
		close(d)
	}
	if heard.Lost {
		m.loss()
	}
	if len(holders) > 0 {
		m.suspect(e, holders, now)
	}
	return heard.Held
}
