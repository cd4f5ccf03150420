package local

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// AllowLimit is AllowN under a limit that comes with the call, for example a quota in the caller's token. The limit
// must be of the limiter's algorithm, or Unlimited or Blocked, whose answers do not describe the key. An invalid limit
// is a *hybridlimit.InvalidError, and nothing is taken. A limit that was used recently, with any key, is neither
// validated nor converted again.
//
// A key that is not held begins full under the limit. A key that is held changes to it as SetLimit describes, and a
// later call without a limit restores the key's own. So if calls of one key alternate between limits, the key refills
// between two calls at the rate of the earlier call, and a bucket holds at most the smallest burst.
func (l *Limiter) AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error) {
	return l.allowLimit(l.now(), key, n, limit, l.request(ctx))
}

func (l *Limiter) allowLimit(now time.Duration, key string, n int64, limit hybridlimit.Limit, request string) (res hybridlimit.Result, err error) {
	p, err := l.planFor(limit)
	if err == nil {
		err = l.decide(&res, now, key, n, p, request)
	}
	return res, err
}

// SetLimit changes the limit of all keys without a limit of their own (from Config.LimitFor). It may change rate,
// period and burst, but not the algorithm. Unlimited and Blocked may replace any limit and may be replaced by it; the
// usage of keys stays. The error is a *hybridlimit.InvalidError, or wraps hybridlimit.ErrClosed; nothing has changed
// then.
//
// SetLimit never refills a key that is held:
//
//   - buckets: the level stays, in units, also below zero. Units above the new burst are lost. The new rate refills
//     from then on, so a key that had used all of a small limit refills towards a larger one.
//   - queue: its content stays, in units, and is served at the new rate. A Delay that was already returned stays valid.
//   - windows and log: used units stay used, and the new Rate counts at once. With a new Period, the current fixed
//     window keeps its end. The estimate of a sliding window becomes the count of its current window. The entries of a
//     log keep the times at which they leave.
//
// A key that is not held begins full under the new limit. SetLimit visits all keys, one shard after the other: about 50
// ms for 100 000 keys. A decision may have to wait for one of the shards. IdleAfter stays, or grows to the time that
// the limit needs.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	return l.setLimit(l.now(), limit)
}

func (l *Limiter) setLimit(now time.Duration, limit hybridlimit.Limit) error {
	p, err := l.planFor(limit)
	if err != nil {
		return err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	for i := range l.shards {
		if !l.shards[i].change(p, now) {
			return errClosed
		}
	}
	l.base.Store(p)
	return nil
}

// change makes p the limit of the shard and of its keys. It does not wait for a key's next call: by then, the refill at
// the old rate could no longer be computed.
func (s *shard) change(p *plan, now time.Duration) (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	at, _ := s.tick(now)
	s.base = p
	if static(p.limit.Algorithm) {
		return true // the usage of keys stays, and comes back at the old rate
	}
	for _, e := range s.keys.Values() {
		if s.counted != nil && e.own == nil && e.plan.limit == s.counted.limit {
			e.use(p, at)
		}
	}
	s.counted = p
	return true
}

// counts returns the algorithm of all keys' states. It is that of the first limit that is not static. If there was none
// yet, next becomes the first.
func (l *Limiter) counts(next hybridlimit.Algorithm) hybridlimit.Algorithm {
	have := l.counting.Load()
	if static(hybridlimit.Algorithm(have)) && !static(next) {
		l.counting.CompareAndSwap(have, uint32(next))
		have = l.counting.Load()
	}
	return hybridlimit.Algorithm(have)
}

// planFor returns the plan of a limit, which must be of this limiter's algorithm.
func (l *Limiter) planFor(limit hybridlimit.Limit) (*plan, error) {
	slot := l.plans.slot(limit)
	if p := slot.Load(); p != nil && p.limit == limit {
		return p, nil
	}
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if limit.Algorithm == hybridlimit.AlgConcurrent {
		bad.Add("Limit.Algorithm", limit.Algorithm, "counts calls in flight, and this is a rate limiter: use NewConcurrency")
	}
	if len(bad) > 0 {
		return nil, bad.Err("local") // before counts, which adopts the algorithm
	}
	if have := l.counts(limit.Algorithm); limit.Algorithm != have && !static(limit.Algorithm) && !static(have) {
		bad.Add("Limit.Algorithm", limit.Algorithm, fmt.Sprintf("must be the limiter's (%v)", have))
	}
	if len(l.views) > 1 && limit.Algorithm == hybridlimit.AlgSlidingLog {
		bad.Add("Limit.Algorithm", limit.Algorithm, "has no floors, and the limiter has classes")
	}
	if err := bad.Err("local"); err != nil {
		return nil, err
	}
	p := newPlan(limit, l.cfg.IdleAfter, l.start)
	slot.Store(p)
	return p, nil
}

// ask returns the plan of LimitFor's limit for key. It returns nil for the limiter's limit: the present one, or that of
// New, since a callback need not know of SetLimit.
func (l *Limiter) ask(key string, base hybridlimit.Limit) (*plan, error) {
	limit := l.cfg.LimitFor(key)
	if limit == base || limit == l.first {
		return nil, nil
	}
	p, err := l.planFor(limit)
	if err != nil {
		return nil, fmt.Errorf("local: Config.LimitFor(%q): %w", key, err)
	}
	return p, nil
}
