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

// Caller runs a batch; package hybrid has one.
type Caller interface {
	// Batch sends env and ops once and returns by ctx's end. The engine does
	// not change ops afterwards, so a call that lives on may read them.
	Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error)
}

// EnvelopeTTL is how long Redis remembers a process's last batch of a tag. A
// batch that is retried later than that, after an outage, may be counted
// twice: an over-count of at most the batch, never an amnesty.
const EnvelopeTTL = 10 * time.Minute

// Config is what an Engine needs. Caller, Names, Process, Timeout and
// Breaker are required.
type Config struct {
	Caller  Caller        // to Redis
	Names   lua.Names     // of the deployment; Tags says how many lanes there are
	Process string        // unique among all processes, ever; a lane adds to it what Renamed tells of
	Timeout time.Duration // of one attempt
	// InFlight bounds the ops that are on their way at once, over all tags; a
	// batch counts as 16 at least. For tags that share one Redis: else their
	// batches wait for each other there, each on its own clock, and a Redis that
	// is busy looks slow. 0: no bound but one batch per tag. One full batch is
	// always let through.
	InFlight int
	// Breaker is asked before each attempt to a tag and told the outcome.
	Breaker func(tag int) *circuit.Breaker
	// Late is by how much this process runs late what is due, because it waits
	// for a core; Timeout at most counts. An attempt has that much longer, and
	// the breaker is told what it took without. Nil: 0.
	Late func() time.Duration
	// OnRefused hears of batches that Redis will never apply, and that were
	// dropped. Nil: nobody.
	OnRefused func(tag int, ops int, err error)
	// OnRefusing hears that a tag has become, or is no longer, Refusing. It is
	// called from the tag's lane, under no lock. Nil: nobody.
	OnRefusing func(tag int, refusing bool, err error)
	// OnRenamed hears that a tag has batches of this process's identity that
	// another has sent: somebody wrote the envelope, or runs a copy of this
	// process. The lane goes on under another identity. It is called from the
	// tag's lane, under no lock. Nil: nobody.
	OnRenamed func(tag int)
	// OnLoss hears that Redis lost what it knew of a tag: its epoch is not the
	// one of the last answer, or an earlier batch is missing. Not sure, when
	// this process was silent for so long that the epoch may have expired by
	// itself. It is called from the tag's lane, under no lock, before the
	// answer that shows the loss is settled. Nil: nobody.
	OnLoss func(tag int, sure bool)
}

// Stats counts since the engine was made.
type Stats struct {
	Messages uint64 // batches sent, retries included
	Ops      uint64 // ops sent, retries included
	Failures uint64 // attempts without an answer
	Seen     uint64 // answers to batches that had been applied before
	Gaps     uint64 // answers that miss an earlier batch: Redis lost writes
	Refused  uint64 // ops that Redis will never apply, and were dropped
	Renamed  uint64 // identities that lanes gave up, since another used them
}

// Engine syncs items with Redis, one lane per tag.
type Engine struct {
	cfg   Config
	made  time.Time
	lanes []lane

	flight *flight

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed against the start of a lane
	closed bool
	wg     sync.WaitGroup // running lanes

	dropOnce sync.Once // for Close

	messages, ops, failures, seen, gaps, refused, renamed atomic.Uint64
	rtt                                                   atomic.Int64 // ns, smoothed
	behind                                                atomic.Int64 // lanes that hold syncs back
}

// New makes an engine. It starts no goroutine: a lane runs while it has
// something to send.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg, made: time.Now(), lanes: make([]lane, cfg.Names.Tags), flight: newFlight(cfg.InFlight)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for tag := range e.lanes {
		e.lanes[tag] = lane{engine: e, tag: tag, kick: make(chan struct{}, 1)}
	}
	return e
}

// Enqueue asks that it sync by due, together with what else is due then. The
// zero time is at once, ahead of all others. So many can be due that telling
// Redis of them would take too much of everybody's time: then they wait for
// longer, but for those that are to go at once. A queued item is moved forward,
// never back. After Close it does nothing.
func (e *Engine) Enqueue(tag int, it Item, due time.Time) {
	var at int64
	if due.IsZero() {
		at = e.at(time.Now()) - urgent
	} else {
		at = max(0, e.at(due))
	}
	e.lanes[tag].enqueue(it, at)
}

// Remove takes it out of its tag's queue for good: Enqueue does nothing with it
// from here on. An op of it that was frozen is settled or dropped all the same.
// So a queue holds no more items than are in use, however long Redis is away.
// It takes the lane's lock and no other, and calls nothing of it but Node.
func (e *Engine) Remove(tag int, it Item) {
	l := &e.lanes[tag]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.remove(it)
}

// Refusing reports whether Redis has refused a tag's last batches, several in a
// row: as good as no Redis, for what is in the tag. The lane asks on, with
// batches that carry nothing, until one is applied.
func (e *Engine) Refusing(tag int) bool { return e.lanes[tag].refusing.Load() }

// Behind says whether items wait for longer than they asked to.
func (e *Engine) Behind() bool { return e.behind.Load() > 0 }

// at is ns after the engine was made.
func (e *Engine) at(t time.Time) int64 { return int64(t.Sub(e.made)) }

// Late is Config.Late, and Timeout at most. It is taken off what a call to Redis
// took before a breaker hears of it, and added to what one may take: else a Redis
// that is well would be slow, or gone, for a process that has no core. See
// Outcome.
func (e *Engine) Late() time.Duration {
	if e.cfg.Late == nil {
		return 0
	}
	return max(0, min(e.cfg.Late(), e.cfg.Timeout))
}

// Outcome is what a breaker is to hear of a call that was given so long, took so
// long, and ended with err. A time-out of one that was given less than half a
// Timeout beyond what this process is late by now says nothing of Redis: its
// answer may lie there, unread. The next call is given more.
func (e *Engine) Outcome(given, took time.Duration, err error) (time.Duration, error) {
	if errors.Is(err, context.DeadlineExceeded) && given-e.Late() < e.cfg.Timeout/2 {
		err = context.Canceled
	}
	return e.Without(took), err
}

// Without is what a call took, less what this process is late by: what Redis
// took, as far as is known.
func (e *Engine) Without(took time.Duration) time.Duration { return max(0, took-e.Late()) }

// RTT is the smoothed time between sending a batch and its answer; 0 before
// the first.
func (e *Engine) RTT() time.Duration { return time.Duration(e.rtt.Load()) }

// Stats returns the counts so far.
func (e *Engine) Stats() Stats {
	return Stats{
		Messages: e.messages.Load(), Ops: e.ops.Load(), Failures: e.failures.Load(),
		Seen: e.seen.Load(), Gaps: e.gaps.Load(), Refused: e.refused.Load(), Renamed: e.renamed.Load(),
	}
}

// Close stops all lanes at once and waits for them. What was not answered is
// dropped. It is idempotent.
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

// start counts a lane's goroutine in, unless the engine is closed.
func (e *Engine) start() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.wg.Add(1)
	}
	return !e.closed
}

// rttWeight is the share of a new measurement in the smoothed round trip, as
// in TCP (RFC 6298).
const rttWeight = 8

func (e *Engine) measured(rtt time.Duration) {
	old := e.rtt.Load()
	if old == 0 {
		e.rtt.Store(int64(rtt))
		return
	}
	e.rtt.Store(old + (int64(rtt)-old)/rttWeight)
}
