package local

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/shards"
)

// ConcurrencyLimiter limits the calls that run at once, for many keys, in this process only. Make one with
// NewConcurrency. It is safe for concurrent use.
//
// A call holds its permits until it releases them: there is no expiry, so a call that never releases holds them for
// ever. A key is in memory while calls of it run or wait, and never evicted then. A key with one running call needs 140
// bytes and its name, within a tenth.
type ConcurrencyLimiter struct {
	cfg    ConcurrencyConfig // defaults filled in
	first  hybridlimit.Limit // the limit given to NewConcurrency
	base   atomic.Pointer[hybridlimit.Limit]
	seed   maphash.Seed
	shards []permitShard // a power of two
	keys   atomic.Int64  // in all shards

	changing sync.Mutex // held by SetLimit and Close, so that all shards end alike
}

var (
	_ hybridlimit.Acquirer  = (*ConcurrencyLimiter)(nil)
	_ hybridlimit.Describer = (*ConcurrencyLimiter)(nil)
)

// retryHint is the RetryAfter of a denial. The end of a call is not known before.
const retryHint = time.Second

// NewConcurrency makes a limiter of calls in flight: a limit of hybridlimit.Concurrent, Unlimited or Blocked. It starts
// no goroutine.
//
// The error is a *hybridlimit.InvalidError with all violations of limit and cfg, or wraps hybridlimit.ErrUnsupported
// for the limit of a rate.
func NewConcurrency(limit hybridlimit.Limit, cfg ConcurrencyConfig) (*ConcurrencyLimiter, error) {
	if err := cfg.check(limit); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	l := &ConcurrencyLimiter{
		cfg:    cfg,
		first:  limit,
		seed:   maphash.MakeSeed(),
		shards: make([]permitShard, shards.Count(cfg.MaxKeys, runtime.GOMAXPROCS(0))),
	}
	l.base.Store(&limit)
	for i := range l.shards {
		l.shards[i].open(limit.BurstSize(), &l.keys, int64(cfg.MaxKeys))
	}
	return l, nil
}

// Allow returns hybridlimit.ErrUnsupported: use Acquire.
func (l *ConcurrencyLimiter) Allow(context.Context, string) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, errHold
}

// AllowN returns hybridlimit.ErrUnsupported: use AcquireN.
func (l *ConcurrencyLimiter) AllowN(context.Context, string, int64) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, errHold
}

var errHold = fmt.Errorf("local: %w: a permit is held while the call runs: use Acquire", hybridlimit.ErrUnsupported)

// Acquire is AcquireN with one permit.
func (l *ConcurrencyLimiter) Acquire(ctx context.Context, key string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return l.AcquireN(ctx, key, 1)
}

// AcquireN acquires n permits of key, all or none, for one call. Without n free permits it waits, at most for
// ConcurrencyConfig.MaxWait and until ctx ends. The call is then denied: the Result says so, and the Permit is zero.
//
// Release the Permit when the call ends, also after a panic. Remaining is the number of free permits. RetryAfter of a
// denial is a hint of 1 s, because the end of a call is not known before. For an n above the limit it is
// hybridlimit.Never, without a wait.
//
// The errors are hybridlimit.ErrEmptyKey, ErrKeyTooLong, ErrCost, ErrClosed, ErrTooManyKeys, the error of ctx, and the
// *hybridlimit.InvalidError of a limit from LimitFor. Nothing is held then.
func (l *ConcurrencyLimiter) AcquireN(ctx context.Context, key string, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, fmt.Errorf("local: %w", err)
	}
	own, err := l.check(key, n)
	if err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	hash := maphash.String(l.seed, key)
	s := l.shard(hash)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return hybridlimit.Permit{}, hybridlimit.Result{}, errClosed
	}
	c := s.find(hash, key)
	if c != nil && c.own != own {
		c.own = own
		s.serve(c) // under the new limit, the calls that wait come first
	}
	most := s.limit(own)
	free, queued := most, false
	if c != nil {
		free, queued = most-c.running, c.first != nil
	}
	switch {
	case n <= free && !queued:
		if c == nil {
			if c = s.enter(hash, key, own); c == nil {
				s.mu.Unlock()
				return hybridlimit.Permit{}, hybridlimit.Result{}, errTooManyKeys
			}
		}
		c.running += n
		s.mu.Unlock()
		return hybridlimit.NewPermit(c, n), l.admitted(most, free-n, n), nil
	case n > most || l.cfg.MaxWait == 0:
		if c != nil {
			s.settle(c)
		}
		s.mu.Unlock()
		return hybridlimit.Permit{}, l.denied(most, free, n), nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	c.push(w)
	s.mu.Unlock()
	return l.wait(ctx, c, w)
}

// check returns the error of a call, and the permits of the key's own limit, or ofShard.
func (l *ConcurrencyLimiter) check(key string, n int64) (own int64, err error) {
	if err := hybridlimit.CheckRequest(key, n, l.cfg.MaxKeyBytes); err != nil {
		return 0, fmt.Errorf("local: %w", err)
	}
	if l.cfg.LimitFor == nil {
		return ofShard, nil
	}
	limit := l.cfg.LimitFor(key)
	if limit == l.first || limit == *l.base.Load() {
		return ofShard, nil
	}
	if own, err = permitsOf(limit); err != nil {
		return 0, fmt.Errorf("local: ConcurrencyConfig.LimitFor(%q): %w", key, err)
	}
	return own, nil
}

func (l *ConcurrencyLimiter) shard(hash uint64) *permitShard {
	return &l.shards[hash&uint64(len(l.shards)-1)]
}

// wait waits until the call of w is admitted, or until it gives up.
func (l *ConcurrencyLimiter) wait(ctx context.Context, c *permitKey, w *waiter) (hybridlimit.Permit, hybridlimit.Result, error) {
	timer := time.NewTimer(l.cfg.MaxWait)
	defer timer.Stop()
	var gone error
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
		gone = fmt.Errorf("local: %w", ctx.Err())
	}
	s := c.shard // the same if the entry is reused for another key
	s.mu.Lock()
	if w.state == waits {
		c.drop(w)
		s.serve(c) // it may have kept smaller calls behind it waiting
		s.settle(c)
		w.state, w.most, w.free = refused, s.limit(c.own), s.limit(c.own)-c.running
	}
	s.mu.Unlock()
	switch w.state {
	case shut:
		return hybridlimit.Permit{}, hybridlimit.Result{}, errClosed
	case served:
		permit := hybridlimit.NewPermit(c, w.n)
		if gone != nil {
			permit.Release()
			return hybridlimit.Permit{}, hybridlimit.Result{}, gone
		}
		return permit, l.admitted(w.most, w.free, w.n), nil
	}
	if gone != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, gone
	}
	return hybridlimit.Permit{}, l.denied(w.most, w.free, w.n), nil
}

// admitted returns the answer to a call that leaves some permits free.
func (l *ConcurrencyLimiter) admitted(most, free, n int64) hybridlimit.Result {
	res := l.result(most, free)
	res.Allowed, res.Granted = true, n
	return res
}

// denied returns the answer to a call of n permits that is denied.
func (l *ConcurrencyLimiter) denied(most, free, n int64) hybridlimit.Result {
	res := l.result(most, free)
	if res.RetryAfter = retryHint; n > most {
		res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	}
	return res
}

// result returns the fields common to all answers.
func (l *ConcurrencyLimiter) result(most, free int64) hybridlimit.Result {
	res := hybridlimit.Result{Limit: most, Remaining: max(0, free), Source: hybridlimit.SourceLocal, Policy: l.cfg.Name}
	if most == unlimited {
		res.Source = hybridlimit.SourceStatic
	}
	return res
}

// Peek returns the answer that a call of one permit would get without a wait, and acquires nothing. It fails as Acquire
// does.
func (l *ConcurrencyLimiter) Peek(_ context.Context, key string) (hybridlimit.Result, error) {
	own, err := l.check(key, 1)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	hash := maphash.String(l.seed, key)
	s := l.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return hybridlimit.Result{}, errClosed
	}
	most := s.limit(own)
	free, queued := most, false
	if c := s.find(hash, key); c != nil {
		free, queued = most-c.running, c.first != nil
	}
	if free < 1 || queued {
		return l.denied(most, free, 1), nil
	}
	res := l.result(most, free)
	res.Allowed = true
	return res, nil
}

// Running returns the number of permits of a key that are held. It works after Close too.
func (l *ConcurrencyLimiter) Running(key string) int64 {
	hash := maphash.String(l.seed, key)
	s := l.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(hash, key); c != nil {
		return c.running
	}
	return 0
}

// Len returns the number of keys with running or waiting calls.
func (l *ConcurrencyLimiter) Len() int { return int(l.keys.Load()) }

// SetLimit changes the limit of all keys without a limit of their own (from ConcurrencyConfig.LimitFor). With more
// permits, waiting calls are served at once. With fewer, running calls stay, and no call is admitted until they are
// fewer than the limit. A waiting call that needs more than the limit is denied at once. Unlimited and Blocked are
// limits too. The error is a *hybridlimit.InvalidError, or wraps hybridlimit.ErrClosed; nothing has changed then.
// SetLimit visits all keys.
func (l *ConcurrencyLimiter) SetLimit(limit hybridlimit.Limit) error {
	most, err := permitsOf(limit)
	if err != nil {
		return err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	for i := range l.shards {
		if !l.shards[i].change(most) {
			return errClosed
		}
	}
	l.base.Store(&limit)
	return nil
}

// Reset has no effect on running calls: their permits come back when they are released. It fails as Peek does.
func (l *ConcurrencyLimiter) Reset(ctx context.Context, key string) error {
	_, err := l.Peek(ctx, key)
	return err
}

// Name returns ConcurrencyConfig.Name, as in Result.Policy.
func (l *ConcurrencyLimiter) Name() string { return l.cfg.Name }

// Policy returns the limit that is enforced on key.
func (l *ConcurrencyLimiter) Policy(key string) hybridlimit.Policy {
	limit := *l.base.Load()
	if l.cfg.LimitFor != nil {
		if own := l.cfg.LimitFor(key); own != l.first {
			limit = own
		}
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: limit}
}

// Close denies all further calls with hybridlimit.ErrClosed, those that wait too. Permits of running calls stay valid
// until they are released. Close is idempotent, and its error is always nil.
func (l *ConcurrencyLimiter) Close() error {
	l.changing.Lock()
	defer l.changing.Unlock()
	for i := range l.shards {
		l.shards[i].close()
	}
	return nil
}

var errTooManyKeys = fmt.Errorf("local: %w", hybridlimit.ErrTooManyKeys)
