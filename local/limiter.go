package local

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Limiter is one limit for many keys, in this process only. Make one with New.
// It is safe for concurrent use.
//
// Only Wait checks whether ctx has ended. The other methods wait only for locks
// that are held for a memory operation. A log reads the request id from ctx.
type Limiter struct {
	cfg    Config            // defaults filled in
	first  hybridlimit.Limit // the limit given to New
	start  time.Time         // shard time 0
	seed   maphash.Seed
	shards []shard // a power of two
	order  uint64  // position among all limiters: AllowJoint takes locks in this order
	plans  plans   // plans of limits from calls, LimitFor and SetLimit

	counting atomic.Uint32        // see counts
	base     atomic.Pointer[plan] // the plan of all shards, for Policy, which is called per request

	changing sync.Mutex // held by SetLimit, so that all shards end with the same limit
	closing  sync.Once
	closed   chan struct{}
}

var _ hybridlimit.Limiter = (*Limiter)(nil)

// New makes a limiter for any algorithm. It starts no goroutine.
//
// The error is a *hybridlimit.InvalidError with all violations of limit and cfg,
// or wraps hybridlimit.ErrUnsupported for an algorithm that this package does not
// know.
func New(limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	if err := check(limit, cfg, math.MaxInt); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(limit)
	return newLimiter(limit, cfg, shardCount(cfg.MaxKeys), time.Now())
}

// newLimiter makes a limiter of arguments that check has accepted, with the
// defaults set. shards is a power of two, at most MaxKeys.
func newLimiter(limit hybridlimit.Limit, cfg Config, shards int, start time.Time) (*Limiter, error) {
	l := &Limiter{
		cfg:    cfg,
		first:  limit,
		start:  start,
		seed:   maphash.MakeSeed(),
		shards: make([]shard, shards),
		order:  made.Add(1),
		closed: make(chan struct{}),
	}
	l.counting.Store(uint32(limit.Algorithm))
	base := newPlan(limit, cfg.IdleAfter, start)
	l.base.Store(base)
	for i := range l.shards {
		room := cfg.MaxKeys / shards
		if i < cfg.MaxKeys%shards {
			room++
		}
		if err := l.shards[i].open(room, base); err != nil {
			return nil, fmt.Errorf("local: cannot make a shard of %d keys: %w", room, err)
		}
	}
	return l, nil
}

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return l.decide(time.Now(), key, 1, nil, l.request(ctx))
}

// AllowN takes n units of key, all or none. It fails, and takes nothing, with
// hybridlimit.ErrEmptyKey, ErrKeyTooLong, ErrCost or ErrClosed, or with the
// *hybridlimit.InvalidError of a limit from Config.LimitFor.
//
// An n above the burst is always denied: RetryAfter is hybridlimit.Never and
// Source is SourceStatic. The other fields describe the key, which is neither
// created nor changed.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.decide(time.Now(), key, n, nil, l.request(ctx))
}

// decide takes n units or none. with is the plan of a limit that comes with the
// call, or nil.
func (l *Limiter) decide(now time.Time, key string, n int64, with *plan, request string) (hybridlimit.Result, error) {
	s, own, err := l.lock(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	at, behind := s.tick(now.Sub(l.start))
	p := s.limitOf(l, key, with, own)
	if static(p.limit.Algorithm) {
		s.mu.Unlock()
		return l.static(p, n), nil
	}
	if n > p.burst {
		seen := s.glance(key, p, own).look(at, 0)
		s.mu.Unlock()
		return l.never(seen, p, behind), nil
	}
	e := s.find(key, p, own)
	e.use(p, at)
	e.by(request)
	delay, ok, seen := e.state.decide(p, at, n)
	s.mu.Unlock() // the rest needs no lock
	res := l.result(seen, p, behind)
	if ok {
		res.Allowed, res.Granted, res.Delay = true, n, after(delay, behind)
	}
	return res, nil
}

// lock returns the shard of a key, locked unless there is an error. own is the
// plan from LimitFor of a key that is not held, or nil.
func (l *Limiter) lock(key string, n int64) (s *shard, own *plan, err error) {
	if err := hybridlimit.CheckRequest(key, n, l.cfg.MaxKeyBytes); err != nil {
		return nil, nil, fmt.Errorf("local: %w", err)
	}
	s = l.shardOf(key)
	s.mu.Lock()
	if l.cfg.LimitFor != nil && s.keys != nil && !s.keys.Contains(key) {
		base := s.base.limit
		s.mu.Unlock() // the callback may be slow or call this limiter
		if own, err = l.ask(key, base); err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
	}
	if s.keys == nil {
		s.mu.Unlock()
		return nil, nil, errClosed
	}
	return s, own, nil
}

// limitOf returns the plan that applies to a call of key.
func (s *shard) limitOf(l *Limiter, key string, with, own *plan) *plan {
	switch {
	case with != nil:
		return with
	case l.cfg.LimitFor == nil:
		return s.base
	}
	if e, ok := s.keys.Peek(key); ok {
		own = e.own
	}
	if own != nil {
		return own
	}
	return s.base
}

// result returns the Result for a look at a key. Its waits count from the
// caller's time, which is behind the shard's.
func (l *Limiter) result(seen look, p *plan, behind time.Duration) hybridlimit.Result {
	return hybridlimit.Result{
		Limit:      p.burst,
		Remaining:  seen.room,
		RetryAfter: after(seen.retry, behind),
		ResetAfter: after(seen.reset, behind),
		Source:     hybridlimit.SourceLocal,
		Policy:     l.cfg.Name,
	}
}

// static returns the answer of a limit that counts nothing.
func (l *Limiter) static(p *plan, n int64) hybridlimit.Result {
	res := hybridlimit.Result{Limit: p.burst, Source: hybridlimit.SourceStatic, Policy: l.cfg.Name}
	if res.Allowed = p.limit.Algorithm == hybridlimit.AlgUnlimited; res.Allowed {
		res.Granted, res.Remaining = n, p.burst
	} else {
		res.RetryAfter = hybridlimit.Never
	}
	return res
}

// never returns the answer to a cost above the burst.
func (l *Limiter) never(seen look, p *plan, behind time.Duration) hybridlimit.Result {
	seen.room = min(seen.room, p.burst)
	res := l.result(seen, p, behind)
	res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	return res
}

// after converts a wait from the shard's time to the caller's.
func after(d, behind time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return min(d, hybridlimit.Never-1-behind) + behind
}

var errClosed = fmt.Errorf("local: %w", hybridlimit.ErrClosed)

func (l *Limiter) shardOf(key string) *shard { return &l.shards[l.indexOf(key)] }

func (l *Limiter) indexOf(key string) int {
	return int(maphash.String(l.seed, key) & uint64(len(l.shards)-1))
}
