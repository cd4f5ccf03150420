package ratesync

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// exchange is enqueue at once, by a caller that waits for the answer. If no batch of the lane is in flight, the
// caller's goroutine sends the batch and settles the answer: no other goroutine has to be woken twice. If one is in
// flight, it may send an op that only asks beside it. The caller gives up after most. The lane then sends the batch
// again, as after any miss.
func (l *lane) exchange(ctx context.Context, it Item, due int64, most time.Duration) {
	select {
	case l.owner <- struct{}{}:
	default:
		if !l.beside(ctx, it, most) {
			l.enqueue(due, it)
		}
		return
	}
	e := l.engine
	if !e.start() { // closed; from now on Close waits
		<-l.owner
		return
	}
	defer e.wg.Done()
	calm := l.frozen == nil && len(l.parts) == 0 && l.misses == 0 && !l.behind && !l.refusing.Load() &&
		e.cfg.Breaker(l.tag).State() == breaker.Closed
	if !calm {
		<-l.owner
		l.enqueue(due, it)
		return
	}
	l.mu.Lock()
	if it.Node().place != gone {
		l.queue.put(it, due)
	}
	l.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, most)
	closed := context.AfterFunc(e.ctx, cancel)
	l.attempt(bounded)
	closed()
	cancel()
	left := l.frozen != nil || len(l.parts) > 0
	<-l.owner
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !left && len(l.queue) == 0:
	case l.idle == nil:
		l.start()
	case left || l.queue[0].Node().due <= e.at(time.Now()): // otherwise it sleeps until the first item is due
		l.wake()
	}
}

// mostBeside is the number of messages beside the batch of a lane. The ops of more callers go with the next batch of
// the lane, which costs Redis less.
const mostBeside = 4

// beside sends the op of an item while another goroutine owns the lane. An op that cannot go beside is left to the
// lane. beside returns false if it did nothing.
func (l *lane) beside(ctx context.Context, it Item, most time.Duration) bool {
	e := l.engine
	br := e.cfg.Breaker(l.tag)
	if !l.calm.Load() || br.State() != breaker.Closed {
		return false
	}
	defer l.besides.Add(-1)
	if l.besides.Add(1) > mostBeside || !e.start() {
		return false
	}
	defer e.wg.Done()
	l.mu.Lock()
	out := l.queue.takeOut(it)
	l.mu.Unlock()
	if !out {
		return false
	}
	now := time.Now()
	op, ok := it.Freeze(now)
	if !ok {
		l.putBack(it)
		return true
	}
	b := &batch{tag: l.tag, ops: []wire.Op{op}, items: []Item{it}}
	if !op.AsksByView() || !e.enough(l.tag, time.Duration(e.at(now)-l.proved.Load()), op.View != wire.View{}) {
		l.leave(b)
		return true
	}
	call, ok := br.Begin()
	if !ok {
		l.leave(b)
		return true
	}
	b.sent = now
	bounded, cancel := context.WithTimeout(ctx, most)
	closed := context.AfterFunc(e.ctx, cancel)
	reply, _, err := e.exchange(bounded, b, call)
	closed()
	cancel()
	if err != nil {
		if b.uncertain = !errors.Is(err, wire.ErrRefused); b.uncertain {
			l.calm.Store(false)
			e.failures.Add(1)
			it.Uncertain(op)
		}
		l.leave(b)
		return true
	}
	it.Settle(Answer{Answer: reply.Answers[0], RedisNow: reply.Now, Sent: now, Received: time.Now()})
	l.putBack(it)
	return true
}

// putBack puts items back that are out. Items that were to be queued meanwhile are queued.
func (l *lane) putBack(items ...Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		if l.queue.putBack(it) && (l.idle != nil || l.start()) && l.queue[0] == it {
			l.wake()
		}
	}
}

// leave leaves a batch to the lane. Its item stays out until the lane has settled it.
func (l *lane) leave(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left = append(l.left, b); l.idle != nil || l.start() {
		l.wake()
	}
}

// takeLeft moves batches of one op that were left to the lane into one that has none of its own yet, up to most ops.
// Call it with mu held.
func (l *lane) takeLeft(b *batch, most int) {
	for len(l.left) > 0 && len(b.ops) < most {
		b.take(l.left[0])
		l.left = l.left[1:]
	}
	if len(l.left) == 0 {
		l.left = nil
	}
}
