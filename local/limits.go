package local

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// AllowLimit is AllowN under a limit that comes with the call: the plan in a
// caller's token, say. The limit must be of the limiter's algorithm; what is
// wrong with it is an *hybridlimit.InvalidError, and nothing is taken. Unlimited and
// Blocked go with all, and tell nothing of the key. One that
// was used lately, by whichever key, is neither checked nor built again.
//
// A key that is not held begins full under it; one that is held goes over to it
// as SetLimit describes, and a later call that brings none takes it back to its
// own. So calls of one key with limits in turn refill it, from one call to the
// next, as fast as the limit of the former says, and a bucket holds no more
// than the smallest burst lets it.
func (l *Limiter) AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error) {
	return l.allowLimitAt(time.Now(), key, n, limit, l.request(ctx))
}

func (l *Limiter) allowLimitAt(now time.Time, key string, n int64, limit hybridlimit.Limit, request string) (hybridlimit.Result, error) {
	p, err := l.planFor(limit)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return l.decide(now, key, n, p, request)
}

// SetLimit changes the limit of all keys that have none of their own (by
// Config.LimitFor). It may change rate, period and burst, not the algorithm; but
// Unlimited and Blocked go with all, and what keys have used survives them. The
// error is an *hybridlimit.InvalidError, or wraps hybridlimit.ErrClosed; then
// nothing has changed. It never refills a key that is held:
//
//   - buckets: what is left stays left and what is owed stays owed, in units;
//     what is above the new burst is lost. From then on the new rate refills,
//     so that a key that had used everything of a small limit grows into a
//     larger one.
//   - queue: what stands in it stays, in units, and is served at the new rate.
//     Who was told a Delay keeps to it.
//   - windows and log: what was used stays used, and the new Rate counts at
//     once. Of a new Period, the fixed window in progress keeps its end; the
//     estimate of a sliding one becomes what was used in the window that now
//     is; what is in a log leaves when it would have left.
//
// A key that is not held begins full under the new limit. It goes over all keys,
// one shard after the other: about 50 ms for 100 000 keys, of which a decision
// may have to wait for a 64th. IdleAfter stays, or grows to what the limit needs.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	return l.setLimitAt(time.Now(), limit)
}

func (l *Limiter) setLimitAt(now time.Time, limit hybridlimit.Limit) error {
	p, err := l.planFor(limit)
	if err != nil {
		return err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	for i := range l.shards {
		if !l.shards[i].change(p, now.Sub(l.start)) {
			return errClosed
		}
	}
	l.base.Store(p)
	return nil
}

// change makes p the limit of the shard, now rather than when a key is used
// next: by then it would be too late to tell what had come back at the old rate.
func (s *shard) change(p *plan, now time.Duration) (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		return false
	}
	at, _ := s.tick(now)
	s.base = p
	if static(p.limit.Algorithm) {
		return true // what keys have used stays, and comes back at the old rate
	}
	for _, e := range s.keys.Values() {
		if s.counted != nil && e.own == nil && e.plan.limit == s.counted.limit {
			e.use(p, at)
		}
	}
	s.counted = p
	return true
}

// counts is the algorithm that all keys' states are of: that of the first limit
// that counted anything, which next may be.
func (l *Limiter) counts(next hybridlimit.Algorithm) hybridlimit.Algorithm {
	have := l.counting.Load()
	if static(hybridlimit.Algorithm(have)) && !static(next) {
		l.counting.CompareAndSwap(have, uint32(next))
		have = l.counting.Load()
	}
	return hybridlimit.Algorithm(have)
}

// planFor is the plan of a limit of this limiter's algorithm.
func (l *Limiter) planFor(limit hybridlimit.Limit) (*plan, error) {
	slot := l.plans.slot(limit)
	if p := slot.Load(); p != nil && p.limit == limit {
		return p, nil
	}
	var bad hybridlimit.Violations
	checkLimit(&bad, limit, math.MaxInt)
	if have := l.counts(limit.Algorithm); len(bad) == 0 && limit.Algorithm != have && !static(limit.Algorithm) && !static(have) {
		bad.Add("Limit.Algorithm", limit.Algorithm, fmt.Sprintf("must be the limiter's (%v)", have))
	}
	if err := bad.Err("local"); err != nil {
		return nil, err
	}
	p := newPlan(limit, l.cfg.IdleAfter, l.start)
	slot.Store(p)
	return p, nil
}

// ask is what LimitFor says of key, nil if that is the limiter's limit: as it is,
// or as it was before SetLimit, of which a callback need not know.
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
