package local

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// limits are the limits of a limiter: those of its Config.LimitFor, of its calls and of SetLimit.
type limits struct {
	cfg   Config            // defaults filled in
	first hybridlimit.Limit // the limit given to New
	start time.Time         // shard time 0

	plans    plans
	base     atomic.Pointer[plan] // the plan of all shards, for Policy, which is called per request
	counting atomic.Uint32        // see counts

	// voids counts the calls of Invalidate and InvalidateAll. An answer of LimitFor is void if the number has changed
	// since its question: the question may be the older of the two.
	voids   atomic.Uint64
	invalid atomic.Uint64 // answers of LimitFor that changed nothing
}

// counts returns the algorithm of all keys' states. It is that of the first limit that is not static. If there was none
// yet, next becomes the first.
func (ls *limits) counts(next hybridlimit.Algorithm) hybridlimit.Algorithm {
	have := ls.counting.Load()
	if static(hybridlimit.Algorithm(have)) && !static(next) {
		ls.counting.CompareAndSwap(have, uint32(next))
		have = ls.counting.Load()
	}
	return hybridlimit.Algorithm(have)
}

// planFor returns the plan of a limit, which must be of this limiter's algorithm.
func (ls *limits) planFor(limit hybridlimit.Limit) (*plan, error) {
	slot := ls.plans.slot(limit)
	if p := slot.Load(); p != nil && p.limit == limit {
		return p, nil
	}
	var bad adapter.Violations
	bad.AddLimit(limit)
	if limit.Algorithm == hybridlimit.AlgConcurrent {
		bad.Add("Limit.Algorithm", limit.Algorithm, "counts calls in flight, and this is a rate limiter: use NewConcurrency")
	}
	if len(bad) > 0 {
		return nil, bad.Err("local") // before counts, which adopts the algorithm
	}
	if have := ls.counts(limit.Algorithm); limit.Algorithm != have && !static(limit.Algorithm) && !static(have) {
		bad.Add("Limit.Algorithm", limit.Algorithm, fmt.Sprintf("must be the limiter's (%v)", have))
	}
	if len(ls.cfg.Classes) > 0 && limit.Algorithm == hybridlimit.AlgSlidingLog {
		bad.Add("Limit.Algorithm", limit.Algorithm, "has no floors, and the limiter has classes")
	}
	if err := bad.Err("local"); err != nil {
		return nil, err
	}
	p := newPlan(limit, ls.cfg.IdleAfter, ls.start)
	slot.Store(p)
	return p, nil
}

// question is a question to LimitFor about a key, and its answer.
type question struct {
	of    *entry           // nil: the key was not held
	next  refresh.Deadline // without a newer question
	voids uint64
	base  hybridlimit.Limit

	asked bool  // there is or was an answer
	used  bool  // the answer was used
	own   *plan // nil: that of the limiter
	err   error
}

// due reports whether LimitFor must be asked about the key. with is the limit that the call brings: then only a key
// that is not held needs an answer.
func (ls *limits) due(at *place, now time.Duration, with *plan) bool {
	return ls.cfg.LimitFor != nil && !at.closed && (at.entry == nil || with == nil && at.entry.asks.Due(int64(now)))
}

// question begins a question that is due. Until the answer has come, other calls decide by the old limit and do not
// ask.
func (ls *limits) question(at *place, now time.Duration) question {
	next := refresh.Next(ls.cfg.LimitRefresh, int64(now))
	if at.entry != nil {
		at.entry.asks = next
	}
	return question{of: at.entry, voids: ls.voids.Load(), base: at.base.limit, next: next}
}

// ask calls LimitFor. It may be slow, or call the limiter, so no shard may be locked. An answer that is the limiter's
// limit, the present one or that of New, is no limit of the key's own: a callback need not know of SetLimit.
func (ls *limits) ask(q *question, key string) {
	limit := ls.cfg.LimitFor(key)
	if q.asked = true; limit == q.base || limit == ls.first {
		return
	}
	if q.own, q.err = ls.planFor(limit); q.err != nil {
		q.err = fmt.Errorf("local: Config.LimitFor(%q): %w", key, q.err)
	}
}

// answer uses the answer to q, unless there was a newer question. at.entry is the key's present one.
func (ls *limits) answer(at *place, now time.Duration, q *question) error {
	q.used = true
	e := at.entry
	if q.err != nil {
		if e == nil {
			return q.err
		}
		ls.invalid.Add(1)
		return nil
	}
	next := q.next
	if ls.voids.Load() != q.voids {
		next = 0
	}
	if e == nil {
		at.own, at.asks = q.own, next
		return nil
	}
	if e != q.of || e.asks != q.next {
		return nil
	}
	before := at.limit()
	e.asks = next
	if e.own != q.own {
		e.write().own = q.own
	}
	present := at.limit()
	if !static(present.limit.Algorithm) && (static(before.limit.Algorithm) || e.plan.limit == before.limit) {
		t, _ := at.tick(now)
		e.use(present, t)
	}
	return nil
}
