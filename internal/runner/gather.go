package runner

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Gather sends ops of concurrent callers in common messages (group commit). If no message of a tag is in flight, an op
// goes out at once, alone. Ops that come while one is in flight go out together when it is back. docs/decisions/0037
// has the reasons. A Gather is safe for concurrent use.
type Gather struct {
	runner  *Runner
	timeout time.Duration
	breaker func(tag int) *circuit.Breaker
	slots   []atomic.Pointer[slot] // by tag; nil: not used yet
	texts   texts
	timers  sync.Pool // of *time.Timer, stopped
	alarms  sync.Pool // of *alarm, stopped
}

// Gather returns a Gather for tags below the given number. Its calls return after timeout, at the latest. breaker
// returns the breaker of a tag: while it is open, no message of the tag is sent, and calls fail with ErrOpen. Nil:
// there are no breakers.
func (r *Runner) Gather(tags int, timeout time.Duration, breaker func(tag int) *circuit.Breaker) *Gather {
	if breaker == nil {
		breaker = func(int) *circuit.Breaker { return nil }
	}
	return &Gather{runner: r, timeout: timeout, breaker: breaker, slots: make([]atomic.Pointer[slot], tags)}
}

// ErrOpen is the error of a message that is not sent, because a breaker is open.
var ErrOpen = errors.New("the breaker is open, because Redis did not answer")

// Ask runs an op of a tag, without an envelope. It returns the answer and its time, in µs of Redis time.
//
// Each op is in one message, which is sent once. If the message gets no answer, every caller in it gets the error, and
// each op may or may not have been applied. If ctx ends before the message is sent, the op is not sent. The end of ctx
// concerns no other caller. An op that Redis refuses refuses no other op.
func (g *Gather) Ask(ctx context.Context, tag int, op wire.Op) (wire.Answer, int64, error) {
	s := g.slots[tag].Load()
	if s == nil {
		g.slots[tag].CompareAndSwap(nil, &slot{timeout: g.timeout, breaker: g.breaker(tag)})
		s = g.slots[tag].Load()
	}
	return g.ask(ctx, s, op)
}

// Alone is Ask with a message of its own, sent at once.
func (g *Gather) Alone(ctx context.Context, tag int, op wire.Op) (wire.Answer, int64, error) {
	return g.ask(ctx, &slot{timeout: g.timeout, breaker: g.breaker(tag)}, op)
}

func (g *Gather) ask(ctx context.Context, s *slot, op wire.Op) (wire.Answer, int64, error) {
	if !g.runner.Begin() {
		return wire.Answer{}, 0, hybridlimit.ErrClosed
	}
	defer g.runner.Done()
	if err := ctx.Err(); err != nil {
		return wire.Answer{}, 0, err
	}
	m, caller, send := s.join(ctx, op)
	if send && ctx.Done() == nil && g.runner.sends.Load().strict != nil {
		g.carryHere(s, m)
		g.send(s, s.landed(m))
		return m.answer(caller)
	}
	if send {
		g.send(s, m)
	}
	return g.wait(ctx, s, m, caller, send)
}

// send sends m, if it is not nil, and then the messages that wait, until none does. Call it only between Begin and
// Done.
func (g *Gather) send(s *slot, m *message) {
	if m != nil {
		g.runner.calls.Add(1)
		go func() {
			defer g.runner.calls.Done()
			for m := m; m != nil; m = s.landed(m) {
				g.carry(s, m)
				runtime.Gosched() // callers that ask again at once are in the next message
			}
		}()
	}
}

// wait waits for the answer to a caller, until ctx or the time-out ends.
func (g *Gather) wait(ctx context.Context, s *slot, m *message, caller int, sent bool) (wire.Answer, int64, error) {
	began := time.Now()
	deadline := began.Add(g.timeout)
	pause := s.patience() // until the message in flight may be late
	if sent {
		pause = g.timeout
	}
	timer := g.timer(pause)
	defer g.release(timer)
	err := context.DeadlineExceeded
	for waits := true; waits; {
		select {
		case <-m.ended:
			waits = false
		case <-ctx.Done():
			err, waits = ctx.Err(), false
		case <-timer.C:
			left := time.Until(deadline)
			if waits = left > 0; waits {
				now, again := s.overtake(m)
				g.send(s, now)
				if again > 0 {
					left = min(left, again)
				}
				timer.Reset(left)
			}
		}
	}
	select {
	case <-m.ended: // also if ctx ended at the same time
		ans, now, err := m.answer(caller)
		return ans, now, ended(ctx, err)
	default:
	}
	g.send(s, s.leave(m, caller))
	g.runner.dials.blame(began, &err)
	return wire.Answer{}, 0, err
}

// carry sends a message and waits until go-redis has returned.
func (g *Gather) carry(s *slot, m *message) {
	defer m.end() // after the breaker has heard of it
	if s.breaker == nil {
		g.carried(m)
		return
	}
	call, ok := s.breaker.Begin()
	if !ok {
		m.err = ErrOpen
		return
	}
	began := time.Now()
	g.carried(m)
	took := time.Since(began)
	call.End(took, Health(m.err, took, g.timeout))
}

// Health returns what the end of a message says about Redis, for circuit.Call.End. A message that Redis refused is
// answered. One whose time-out came late by a quarter says that this process had no processor time, and nothing about
// Redis.
func Health(err error, took, timeout time.Duration) error {
	switch {
	case errors.Is(err, wire.ErrRefused):
		return nil
	case err != nil && took > timeout+timeout/4:
		return context.Canceled
	}
	return err
}

func (g *Gather) carried(m *message) {
	m.reply, m.err = g.batch(m, m.ops)
	if len(m.ops) > 1 && errors.Is(m.err, wire.ErrRefused) { // one op is bad, and none was applied
		m.alone = make([]outcome, len(m.ops))
		for i := range m.ops {
			m.alone[i].reply, m.alone[i].err = g.batch(m, m.ops[i:i+1])
		}
	}
}

// carryHere is carry on the goroutine of the only caller. It returns at the message's deadline, at the latest.
func (g *Gather) carryHere(s *slot, m *message) {
	m.strict = true
	a := g.alarm(m)
	g.carry(s, m)
	if a.timer.Stop() { // otherwise it may still ring
		a.of.Store(nil)
		g.alarms.Put(a)
	}
}

func (g *Gather) batch(m *message, ops []wire.Op) (wire.Reply, error) {
	run := func(keys []string, argv []any, ops []wire.Op) (wire.Reply, error) {
		return g.runner.batch(m, keys, argv, ops, func(reply wire.Reply) error { return reply.Check(wire.Envelope{}, ops) })
	}
	if op := &ops[0]; len(ops) == 1 && g.texts.keeps(op) {
		m.oneKey[0] = op.Key
		return run(m.oneKey[:], g.texts.of(op), ops)
	}
	return g.runner.inPeriods(m, ops, func(ops []wire.Op) (wire.Reply, error) {
		keys, texts := wire.EncodeBatch(wire.Envelope{}, ops)
		return run(keys, boxed(texts), ops)
	})
}
