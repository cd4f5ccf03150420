package local

import (
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// questions decides when LimitFor is asked again about a key that is held.
type questions struct {
	// voids counts the calls of Invalidate and InvalidateAll. An answer is void if the number has changed since its
	// question: the question may be the older of the two.
	voids   atomic.Uint64
	invalid atomic.Uint64
}

// question is a question to LimitFor about a key, and its answer.
type question struct {
	of    *entry           // nil: the key was not held
	next  refresh.Deadline // without a newer question
	voids uint64
	base  hybridlimit.Limit

	done bool // there is an answer that is not used
	own  *plan
	err  error
}

// due reports whether LimitFor must be asked about the key. The shard is locked. asks reports whether the call may ask
// about a key that is held.
func (l *Limiter) due(at *place, now time.Duration, asks bool) bool {
	return at.entry == nil || asks && at.entry.asks.Due(int64(now))
}

// question begins a question that is due. The shard is locked. Until the answer has come, other calls decide by the old
// limit and do not ask.
func (l *Limiter) question(at *place, now time.Duration) question {
	q := question{of: at.entry, voids: l.questions.voids.Load(), base: at.base.limit, next: refresh.Next(l.cfg.LimitRefresh, int64(now))}
	if q.of != nil {
		q.of.asks = q.next
	}
	return q
}

// ask calls LimitFor, under no lock.
func (q *question) ask(l *Limiter, key string) {
	q.own, q.err = l.ask(key, q.base)
	q.done = true
}

// answer uses the answer to q, unless there was a newer question. The shard is locked, and at.entry is the key's
// present one.
func (l *Limiter) answer(at *place, now time.Duration, q *question) error {
	q.done = false
	e := at.entry
	if q.err != nil {
		if e == nil {
			return q.err
		}
		l.questions.invalid.Add(1)
		return nil
	}
	next := q.next
	if l.questions.voids.Load() != q.voids {
		next = 0
	}
	if e == nil {
		at.own, at.asks = q.own, next
		return nil
	}
	if e != q.of || e.asks != q.next {
		return nil
	}
	before := at.limit(nil)
	e.asks = next
	if e.own != q.own {
		e.write().own = q.own
	}
	after := at.limit(nil)
	if !static(after.limit.Algorithm) && (static(before.limit.Algorithm) || e.plan.limit == before.limit) {
		t, _ := at.tick(now)
		e.use(after, t)
	}
	return nil
}

// Invalidate makes the next call for key ask Config.LimitFor for its limit, without waiting for Config.LimitRefresh.
// Call it when a key gets another limit, for example with a message about a customer's new plan. The answer changes the
// limit as SetLimit does: used units stay used. Calls that have begun before may still be decided by the old limit. A
// key that is not held needs no Invalidate, and it is no error. Without Config.LimitFor nothing happens. Invalidate
// fails as Reset does.
func (l *Limiter) Invalidate(key string) error {
	if err := l.checkKey(key); err != nil {
		return err
	}
	l.questions.voids.Add(1)
	at := l.place(key)
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.closed {
		return errClosed
	}
	if e, ok := at.keys.Peek(key); ok {
		e.asks = 0
	}
	return nil
}

// InvalidateAll is Invalidate for all keys, for example after LimitFor's source was loaded anew. It visits the keys
// that are held, under the lock of one shard after the other (BenchmarkInvalidateAll has the time). A key whose limit
// has not changed keeps its units.
func (l *Limiter) InvalidateAll() error {
	l.questions.voids.Add(1)
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return errClosed
		}
		for _, e := range s.keys.Values() {
			e.asks = 0
		}
		s.mu.Unlock()
	}
	return nil
}

// InvalidLimits returns the number of answers of Config.LimitFor that were not valid, so that a key that is held kept
// its limit.
func (l *Limiter) InvalidLimits() uint64 { return l.questions.invalid.Load() }
