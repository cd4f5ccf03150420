package ratesync

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// lane carries the syncs of one tag, or those of all tags that lie on one server, one batch at a time.
type lane struct {
	engine *Engine
	tag    int           // the lowest of its tags
	kick   chan struct{} // signals that an item became due earlier; capacity 1

	refusing atomic.Bool // see Engine.Refusing

	mu    sync.Mutex // guards queue, left and idle; never held during a call to Redis
	queue queue
	left  []*batch      // of callers beside the lane
	idle  chan struct{} // closed when the goroutine ends; nil: none runs

	calm    atomic.Bool  // messages may go beside the batch of the owner: the last one had an answer
	besides atomic.Int32 // number of messages beside it
	epoch   atomic.Int64 // the latest epoch of its tags
	proved  atomic.Int64 // ns after the engine was made: when the last answered batch with an envelope was sent

	// owner holds an element while a goroutine exchanges a batch: the goroutine of the lane, or that of a caller
	// (exchange).
	owner chan struct{}

	// The fields below belong to the owner, and to Close after it.
	chains map[int]*chain // by tag: see apart
	apart  bool           // the server wants a message for each tag: see splitTags
	frozen *batch
	misses int      // consecutive attempts without an answer
	row    int      // consecutive refused batches, of which parts that are sent again count as one
	parts  []*batch // of a refused batch, in the order in which they are sent: see split
	part   bool     // the frozen batch was one of them
	// refusedParts is the number of consecutive refused parts.
	refusedParts int
	full         bool  // the last batch was full, so more items may be due
	behind       bool  // syncs that can wait are held back until resume
	resume       int64 // ns after the engine was made
}

// pace bounds the time that syncs take which can wait. A lane that is behind sends one full batch and then pauses, so
// that batch and pause last pace times the batch, times the number of lanes that are behind. So these syncs take at
// most 1/pace of one connection, of the capacity of Redis, and of this process's time, however many keys are in use.
const pace = 2

// yield holds back syncs that can wait after a full batch. took is the duration of that batch.
func (l *lane) yield(took time.Duration) {
	if l.behind != l.full {
		l.behind = l.full
		if l.full {
			l.engine.behind.Add(1)
		} else {
			l.engine.behind.Add(-1)
		}
	}
	if l.full {
		l.resume = l.engine.at(time.Now()) + int64(took)*(pace*l.engine.behind.Load()-1)
	}
}

// batch is a frozen batch: sent, or about to be, and not yet answered.
type batch struct {
	tag    int // of its envelope
	env    wire.Envelope
	ops    []wire.Op
	items  []Item
	sent   time.Time // first attempt
	urgent bool      // all items are urgent
	missed bool      // an attempt with this envelope had no answer, so Redis may have applied it
	// uncertain: a message without an envelope had no answer.
	uncertain bool
}

func (b *batch) add(op wire.Op, it Item) { b.ops, b.items = append(b.ops, op), append(b.items, it) }

// take adds the ops of another batch.
func (b *batch) take(of *batch) {
	b.ops, b.items = append(b.ops, of.ops...), append(b.items, of.items...)
	b.uncertain = b.uncertain || of.uncertain
}

func (l *lane) enqueue(due int64, items ...Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		if it.Node().place == gone {
			continue
		}
		if l.idle == nil && !l.start() { // closed: no goroutine would empty the queue
			return
		}
		if l.queue.put(it, due); len(l.queue) > 0 && l.queue[0] == it {
			l.wake()
		}
	}
}

// start starts the goroutine of an idle lane. It returns false if the engine is closed. Call it with mu held.
func (l *lane) start() bool {
	if !l.engine.start() {
		return false
	}
	l.idle = make(chan struct{})
	go l.run(l.idle)
	return true
}

// wake makes the goroutine look at the queue again. It never blocks.
func (l *lane) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// drop gives up the frozen batch and empties the queue. Call it only after the goroutine has ended for good.
func (l *lane) drop() {
	if l.frozen == nil {
		l.frozen = new(batch)
	}
	l.takeParts(l.frozen)
	l.takeLeft(l.frozen, math.MaxInt)
	l.settle(func(_ int, it Item) { it.Drop() })
	l.mu.Lock()
	l.queue.clear()
	l.mu.Unlock()
}

func (l *lane) settle(each func(i int, it Item)) {
	items := l.frozen.items
	l.frozen = nil
	for i, it := range items {
		each(i, it)
	}
	l.putBack(items...)
}

// run sends while there is something to send.
func (l *lane) run(idle chan struct{}) {
	defer l.engine.wg.Done()
	defer close(idle)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for l.engine.ctx.Err() == nil {
		l.owner <- struct{}{} // a caller's exchange ends soon, and at once with Close
		wait, busy := l.next()
		kick := l.kick
		if busy && wait <= 0 {
			wait, kick = l.attempt(l.engine.ctx), nil // wake does not shorten a pause after a miss
		}
		<-l.owner
		if !busy {
			return
		}
		if wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-kick:
			case <-l.engine.ctx.Done():
			}
		}
	}
	l.mu.Lock()
	l.idle = nil
	l.mu.Unlock()
}

// next returns the time until the next attempt. If nothing is left to send, it marks the lane idle and returns false.
func (l *lane) next() (time.Duration, bool) {
	if l.frozen != nil || len(l.parts) > 0 || l.refusing.Load() {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.left) > 0 {
		return 0, true
	}
	if len(l.queue) == 0 {
		l.full = false
		l.yield(0)
		l.idle, l.queue = nil, nil // frees the memory of a queue that an outage made large
		return 0, false
	}
	due := l.queue[0].Node().due
	if l.behind && due >= 0 {
		due = max(due, l.resume)
	}
	return time.Duration(due - l.engine.at(time.Now())), true
}

// attempt sends the frozen batch, or a new batch of the items that are due. It returns the pause before the next
// attempt. ctx is the engine's, or that of a caller.
func (l *lane) attempt(ctx context.Context) time.Duration {
	br := l.engine.cfg.Breaker(l.tag)
	call, ok := br.Begin()
	if !ok {
		return untilLetIn(br)
	}
	if l.frozen == nil && !l.freeze() {
		call.End(0, context.Canceled) // no call was made
		return 0
	}
	b := l.frozen
	began := time.Now()
	if b.sent.IsZero() {
		b.sent = began
	}
	e := l.engine
	reply, took, err := e.exchange(ctx, b, call)
	l.calm.Store(err == nil && !l.apart)
	switch {
	case err == nil && !b.others(reply):
		l.misses = 0
		l.applied()
		l.answered(reply, began)
		if !b.urgent {
			l.yield(took)
		}
	case l.splitTags(b, err):
		return 0
	case err == nil || errors.Is(err, wire.ErrRefused):
		return l.refused(err)
	default:
		e.failures.Add(1)
		l.misses++
		if b.missed = !b.bare(); b.bare() {
			for i, it := range b.items {
				it.Uncertain(b.ops[i])
			}
			l.cover(b)
		}
		return retryAfter(l.misses)
	}
	return 0
}

// exchange sends a batch once. It tells the breaker the outcome.
func (e *Engine) exchange(ctx context.Context, b *batch, call circuit.Call) (reply wire.Reply, took time.Duration, err error) {
	e.messages.Add(1)
	e.ops.Add(uint64(len(b.ops)))
	e.sends(len(b.ops))
	if e.cfg.Begin != nil {
		e.cfg.Begin()
		defer e.cfg.End()
	}
	given, began := e.Timeout()+e.Late(), time.Now()
	bounded, cancel := context.WithTimeout(ctx, given)
	reply, err = e.cfg.Caller.Batch(bounded, b.env, b.ops)
	cancel()
	took = time.Since(began)
	if ctx.Err() != nil && err != nil {
		err = context.Canceled // closing, or the caller has left: no evidence against Redis
	}
	call.End(e.Outcome(given, took, err))
	if err == nil {
		e.measured(took)
	}
	return reply, took, err
}

// freeze builds the next batch from the items that are due. It returns false if no item has an op. While Redis refuses
// batches, the batch is empty, so that a refusal loses nothing.
func (l *lane) freeze() bool {
	if l.refusing.Load() {
		l.send(&batch{tag: l.tag})
		return true
	}
	if l.nextPart() {
		return true
	}
	now := time.Now()
	b := &batch{tag: l.tag}
	items := l.due(now, b)
	if !b.urgent {
		l.full = len(items) == wire.MaxOps
	}
	if l.apart && len(items) > 0 {
		b.tag = int(items[0].Node().Tag)
	}
	none := items[:0]
	for _, it := range items {
		if op, ok := it.Freeze(now); ok {
			b.add(op, it)
		} else {
			none = append(none, it)
		}
	}
	l.putBack(none...)
	if len(b.ops) == 0 {
		return false
	}
	l.parts = b.splitShort()
	l.send(b)
	return true
}

// due takes the items of the next batch from the queue, and moves the ops that were left to the lane into b. While
// other syncs are held back, it takes urgent items only; b.urgent is then true.
func (l *lane) due(now time.Time, b *batch) []Item {
	then := l.engine.at(now)
	if b.urgent = l.behind && then < l.resume; b.urgent {
		then = -1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takeLeft(b, wire.MaxOps)
	return l.queue.take(then, wire.MaxOps-len(b.ops), l.apart)
}

// answered settles the batch. began is the start of the attempt that was answered.
func (l *lane) answered(reply wire.Reply, began time.Time) {
	now := time.Now()
	if reply.Seen {
		l.engine.seen.Add(1)
	}
	if !l.frozen.bare() {
		l.look(reply, now, began)
	}
	ans := Answer{RedisNow: reply.Now, Sent: l.frozen.sent, Received: now}
	l.settle(func(i int, it Item) {
		a := ans
		a.Answer = reply.Answers[i]
		it.Settle(a)
	})
}

// look compares the answer to a batch with an envelope with the earlier ones: Redis may have lost writes.
func (l *lane) look(reply wire.Reply, now, began time.Time) {
	c := l.chain(l.frozen.tag)
	sure := now.Before(c.kept)
	gap := reply.Gap && sure
	if gap {
		l.engine.gaps.Add(1)
	}
	moved := c.epoch != 0 && reply.Epoch != c.epoch
	c.kept, c.epoch = began.Add(EnvelopeTTL), reply.Epoch
	l.epoch.Store(max(l.epoch.Load(), reply.Epoch))
	l.proved.Store(l.engine.at(began))
	if (gap || moved) && l.engine.cfg.OnLoss != nil {
		l.engine.cfg.OnLoss(l.tag, sure)
	}
}

// longestSleep bounds the pause of a lane that reads RetryIn just after another lane has become the probe. RetryIn is
// then the time until that probe counts as lost.
const longestSleep = 250 * time.Millisecond

// untilLetIn returns the pause of a lane that the breaker has turned away. While another lane's probe is in flight,
// RetryIn is too long: it is the time until that probe counts as lost, but most probes are answered within a round
// trip.
func untilLetIn(br *circuit.Breaker) time.Duration {
	if br.State() == breaker.HalfOpen {
		return retryAfter(1)
	}
	return min(max(br.RetryIn(), time.Millisecond), longestSleep)
}

// retryAfter returns the pause after a number of consecutive misses: 5 ms, doubling up to 160 ms. A random factor in
// [½, 1½) keeps lanes and processes out of step. An open breaker makes the pause longer.
func retryAfter(misses int) time.Duration {
	pause := 5 * time.Millisecond << min(misses-1, 5)
	return pause/2 + rand.N(pause)
}
