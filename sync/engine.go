package ratesync

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Caller runs a batch. Package hybrid implements it.
type Caller interface {
	// Batch sends env and ops once and returns when ctx ends, at the latest. The engine does not change ops afterwards,
	// so a call that outlives ctx may still read them.
	Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error)
}

// EnvelopeTTL is the time for which Redis remembers the last batch of a process in a tag. A batch that is retried
// later, after an outage, may be counted twice. The over-count is at most that batch. Such a retry never forgets usage.
const EnvelopeTTL = 10 * time.Minute

// Config holds the settings of an Engine. Caller, Names, Process, Timeout and Breaker are required.
type Config struct {
	Caller  Caller        // to Redis
	Names   lua.Names     // of the deployment
	Lanes   int           // number of lanes; 0: one for each tag; 1: all tags lie on one server, and share its batches
	Process string        // unique among all processes of all times; a lane appends a suffix when it renames itself (OnRenamed)
	Timeout time.Duration // of one attempt, at least
	// Queueing returns the time that a message of so many ops may wait in the queue of a healthy Redis, if all processes
	// send such messages. An attempt gets at least that much time. Nil: 0.
	Queueing func(ops int64) time.Duration
	// Breaker returns the breaker of a tag. It is asked before each attempt and told the outcome.
	Breaker func(tag int) *circuit.Breaker
	// Late returns the delay with which this process runs due work, because it waits for a core. At most Timeout
	// counts. An attempt gets that much more time, and the breaker is told the duration without it. Nil: 0.
	Late func() time.Duration
	// Begin is called before an attempt, and End after the breaker has been told its outcome: Late need only be known
	// in between. Nil: no call.
	Begin, End func()
	// OnRefused is called when a batch was dropped because Redis will never apply it. Nil: no call.
	OnRefused func(tag int, ops int, err error)
	// OnRefusing is called when a tag becomes Refusing, and when it no longer is. It is called from the tag's lane,
	// without a lock. Nil: no call.
	OnRefusing func(tag int, refusing bool, err error)
	// OnRenamed is called when Redis holds batches of a tag that carry this process's identity and that this process
	// did not send: the envelope was written from outside, or a copy of this process runs. The lane continues under a
	// new identity. OnRenamed is called from the tag's lane, without a lock. Nil: no call.
	OnRenamed func(tag int)
	// Watched reports whether messages of another kind show within a second and a half that the server of the tag has
	// lost its data. While it does, batches that only ask go without an envelope for longer. Nil: false.
	Watched func(tag int) bool
	// OnLoss is called when Redis lost data of a tag: its epoch differs from the epoch of the last answer, or an
	// earlier batch is missing. sure is false if this process was silent for so long that the epoch may simply have
	// expired. OnLoss is called from the tag's lane, without a lock, before the answer that shows the loss is settled.
	// Nil: no call.
	OnLoss func(tag int, sure bool)
}

// Stats are counts since the engine was made.
type Stats struct {
	Messages uint64 // batches sent, retries included
	Ops      uint64 // ops sent, retries included
	Failures uint64 // attempts without an answer
	Seen     uint64 // answers to batches that had been applied before
	Gaps     uint64 // answers that miss an earlier batch: Redis lost writes
	Refused  uint64 // ops that Redis will never apply, and were dropped
	Renamed  uint64 // identities that lanes gave up because another process used them
}

// Engine syncs items with Redis.
type Engine struct {
	cfg   Config
	made  time.Time
	lanes []lane

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed against the start of a lane
	closed bool
	wg     sync.WaitGroup // running lanes

	dropOnce sync.Once // Close drops once

	messages, ops, failures, seen, gaps, refused, renamed atomic.Uint64
	rtt                                                   atomic.Int64 // ns, smoothed
	behind                                                atomic.Int64 // number of lanes that hold syncs back
	largest                                               atomic.Int64 // see Queueing
}

// New returns an engine. It starts no goroutine: a lane runs while it has something to send.
func New(cfg Config) *Engine {
	if cfg.Lanes == 0 {
		cfg.Lanes = cfg.Names.Tags
	}
	e := &Engine{cfg: cfg, made: time.Now(), lanes: make([]lane, cfg.Lanes)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for tag := range e.lanes {
		e.lanes[tag] = lane{engine: e, tag: tag, chains: map[int]*chain{}, kick: make(chan struct{}, 1), owner: make(chan struct{}, 1)}
	}
	return e
}

// Enqueue requests a sync of the item at due, together with other items that are due then. The zero time means at once,
// before all others. When the syncs of a lane would take more than their share of a connection, items wait longer;
// immediate items do not. A queued item can only move to an earlier time. After Close, Enqueue does nothing.
func (e *Engine) Enqueue(tag int, it Item, due time.Time) {
	var at int64
	if due.IsZero() {
		at = e.at(time.Now()) - urgent
	} else {
		at = max(0, e.at(due))
	}
	e.lane(tag).enqueue(at, it)
}

// EnqueueAll is Enqueue at once for items of one lane. They go in one batch, as far as they fit. tag is that of any of
// them.
func (e *Engine) EnqueueAll(tag int, items []Item) {
	e.lane(tag).enqueue(e.at(time.Now())-urgent, items...)
}

// Exchange is Enqueue at once for a caller that waits for the answer, at most for the time most. If the lane of the tag
// is free, the calling goroutine runs the exchange, and the item is settled when Exchange returns. If a batch of the
// lane is in flight, an op that only asks may go beside it in the same way. Otherwise Exchange returns at once, and the
// lane settles the item later. So it does in a crowd: an op whose caller has left would be sent again. It also returns
// when the Caller does because ctx ends, or with Close: the lane then sends the same batch again.
func (e *Engine) Exchange(ctx context.Context, tag int, it Item, most time.Duration) {
	if e.Crowded() {
		e.Enqueue(tag, it, time.Time{})
		return
	}
	e.lane(tag).exchange(ctx, it, e.at(time.Now())-urgent, most)
}

// Remove takes the item out of its tag's queue for good: Enqueue ignores the item from then on. A frozen op of the item
// is still settled or dropped. So a queue holds only items that are in use, however long Redis is away. Remove takes
// the lane's lock and no other lock. The only method of the item that it calls is Node.
func (e *Engine) Remove(tag int, it Item) {
	l := e.lane(tag)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.remove(it)
}

// Refusing reports whether Redis has refused the last batches of a tag, several in a row. For the keys of the tag, that
// is the same as no Redis. The lane sends empty batches until Redis applies one.
func (e *Engine) Refusing(tag int) bool { return e.lane(tag).refusing.Load() }

// Epoch returns the µs of Redis time at which the data of a tag began, or later; 0: not known. Redis forgets it after
// EnvelopeTTL without a batch, or with the last state of a calendar window of the tag.
func (e *Engine) Epoch(tag int) int64 { return e.lane(tag).epoch.Load() }

// Behind reports whether items wait longer than requested.
func (e *Engine) Behind() bool { return e.behind.Load() > 0 }

func (e *Engine) lane(tag int) *lane { return &e.lanes[tag%len(e.lanes)] }

// at returns the ns from the start of the engine to t.
func (e *Engine) at(t time.Time) int64 { return int64(t.Sub(e.made)) }

func (e *Engine) watched(tag int) bool { return e.cfg.Watched != nil && e.cfg.Watched(tag) }

// Late returns Config.Late, at most Config.Timeout. It is subtracted from the duration of a call to Redis before the
// breaker is told, and added to the permitted duration of a call. Otherwise a healthy Redis would look slow, or gone,
// to a process that gets no core. See Outcome.
func (e *Engine) Late() time.Duration {
	if e.cfg.Late == nil {
		return 0
	}
	return max(0, min(e.cfg.Late(), e.cfg.Timeout))
}

// Outcome returns the duration and the error that the breaker is told of a call. given is the call's time limit, took
// is its duration, and err is its error.
//
// A time-out is no evidence against Redis if given exceeds Late by less than half of Config.Timeout: the answer may
// have arrived and not have been read. It becomes context.Canceled. The next call gets more time.
func (e *Engine) Outcome(given, took time.Duration, err error) (time.Duration, error) {
	if errors.Is(err, context.DeadlineExceeded) && given-e.Late() < e.cfg.Timeout/2 {
		err = context.Canceled
	}
	return e.Without(took), err
}

// Timeout returns the time-out of an attempt: the larger one of Config.Timeout and Queueing.
func (e *Engine) Timeout() time.Duration { return max(e.cfg.Timeout, e.Queueing()) }

// Crowded reports whether a message may wait in the queue of a healthy Redis for longer than Config.Timeout. A shorter
// time without an answer is then no evidence against Redis.
func (e *Engine) Crowded() bool { return e.Queueing() > e.cfg.Timeout }

// Queueing returns Config.Queueing of the largest recent batch: other processes have such batches too.
func (e *Engine) Queueing() time.Duration {
	if e.cfg.Queueing == nil {
		return 0
	}
	return e.cfg.Queueing(e.largest.Load())
}

// sends notes the size of a batch. A smaller one than the largest takes an eighth from it, so that it counts for about
// a dozen batches.
func (e *Engine) sends(ops int) {
	was := e.largest.Load()
	e.largest.Store(max(int64(ops), was-(was+7)/8))
}

// Without returns the duration of a call less Late: the best estimate of the time that Redis took.
func (e *Engine) Without(took time.Duration) time.Duration { return max(0, took-e.Late()) }

// RTT returns the smoothed time between sending a batch and its answer; 0 before the first answer.
func (e *Engine) RTT() time.Duration { return time.Duration(e.rtt.Load()) }

// Stats returns the counts so far.
func (e *Engine) Stats() Stats {
	return Stats{
		Messages: e.messages.Load(), Ops: e.ops.Load(), Failures: e.failures.Load(),
		Seen: e.seen.Load(), Gaps: e.gaps.Load(), Refused: e.refused.Load(), Renamed: e.renamed.Load(),
	}
}

// Close stops all lanes at once and waits for them. Ops without an answer are dropped. It is idempotent.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wg.Wait()
	e.dropOnce.Do(func() {
		for i := range e.lanes {
			e.lanes[i].drop()
		}
	})
}

// start registers a lane's goroutine. It returns false if the engine is closed.
func (e *Engine) start() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.wg.Add(1)
	}
	return !e.closed
}

// A new measurement has the weight 1/rttWeight in the smoothed round trip, as in TCP (RFC 6298).
const rttWeight = 8

func (e *Engine) measured(rtt time.Duration) {
	if old := e.rtt.Load(); old != 0 {
		rtt = time.Duration(old + (int64(rtt)-old)/rttWeight)
	}
	e.rtt.Store(int64(rtt))
}
