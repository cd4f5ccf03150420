package local

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/shards"
)

// ConcurrencyConfig sets how a ConcurrencyLimiter waits and keeps its keys. The zero ConcurrencyConfig is ready to use.
type ConcurrencyConfig struct {
	// Name is reported as Result.Policy. Empty: none. If set it must satisfy adapter.CheckName.
	// hybridlimit.AllowAll acquires the permits of several limiters in the order of their names.
	Name string
	// MaxWait is the longest time for which a call waits for a permit. Calls of one key are served in the order in
	// which they came, so a call of many permits is not overtaken by smaller ones. hybridlimit.Never: as long as ctx.
	// Zero: a call without a free permit is denied at once.
	MaxWait time.Duration
	// MaxKeys is the largest number of keys with running calls. The first call of one key more fails with
	// hybridlimit.ErrTooManyKeys. Zero: 100 000. A key without running calls does not count.
	MaxKeys int
	// MaxKeyBytes is the length of the longest valid key, in bytes. Zero: adapter.DefaultMaxKeyBytes.
	MaxKeyBytes int
	// LimitFor returns the limit of a key: of calls in flight, Unlimited or Blocked. If it returns the limit given to
	// NewConcurrency, or the present one, the key follows SetLimit. Nil: all keys have one limit.
	//
	// It is called for each call, under no lock, and must be safe for concurrent use. A new answer changes the key as
	// SetLimit does. A limit that NewConcurrency would refuse is an error of the call (ErrInvalid). A panic of LimitFor
	// goes to the caller, and nothing is held.
	LimitFor func(key string) hybridlimit.Limit
}

// check returns all violations of a limit and of the configuration, or ErrUnsupported for the limit of a rate.
func (c ConcurrencyConfig) check(limit hybridlimit.Limit) error {
	var bad adapter.Violations
	bad.AddLimit(limit)
	checkKeys(&bad, "ConcurrencyConfig.", c.Name, c.MaxKeys, c.MaxKeyBytes)
	bad.AddIf(c.MaxWait < 0, "ConcurrencyConfig.MaxWait", c.MaxWait, "must not be negative")
	if err := bad.Err("local"); err != nil {
		return err
	}
	if limit.Algorithm != hybridlimit.AlgConcurrent && !static(limit.Algorithm) {
		return fmt.Errorf("local: %w: a limiter of calls in flight has no rate (%v): use New", hybridlimit.ErrUnsupported, limit)
	}
	return nil
}

// permitsOf returns the number of permits of a limit of calls in flight. It is unlimited for Unlimited, and 0 for
// Blocked.
func permitsOf(limit hybridlimit.Limit) (int64, error) {
	var bad adapter.Violations
	bad.AddLimit(limit)
	if len(bad) == 0 && limit.Algorithm != hybridlimit.AlgConcurrent && !static(limit.Algorithm) {
		bad.Add("Limit.Algorithm", limit.Algorithm, "must be concurrent, unlimited or blocked: this limiter counts calls in flight")
	}
	return limit.BurstSize(), bad.Err("local")
}

// unlimited is the number of permits of Unlimited. A valid limit of calls in flight has fewer.
const unlimited = math.MaxInt64

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
	_ hybridlimit.Acquirer = (*ConcurrencyLimiter)(nil)
	_ adapter.Describer    = (*ConcurrencyLimiter)(nil)
)

var (
	errHold        = fmt.Errorf("local: %w: a permit is held while the call runs: use Acquire", hybridlimit.ErrUnsupported)
	errTooManyKeys = fmt.Errorf("local: %w", hybridlimit.ErrTooManyKeys)
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
	cfg.MaxKeys = cmp.Or(cfg.MaxKeys, defaultMaxKeys)
	cfg.MaxKeyBytes = cmp.Or(cfg.MaxKeyBytes, adapter.DefaultMaxKeyBytes)
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

// Acquire is AcquireN with one permit.
func (l *ConcurrencyLimiter) Acquire(ctx context.Context, key string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return l.AcquireN(ctx, key, 1)
}

// AcquireN acquires n permits of key, all or none, for one call. Without n free permits it waits, at most for
// ConcurrencyConfig.MaxWait and until ctx ends. The call is then denied: the Result says so, and the Permit is zero.
//
// Release the Permit when the call ends, also after a panic. Remaining is the number of free permits. RetryAfter of a
// denial is a hint of 1 s, or hybridlimit.Never for an n above the limit, which does not wait.
//
// The errors are hybridlimit.ErrEmptyKey, ErrKeyTooLong, ErrCost, ErrClosed, ErrTooManyKeys, the error of ctx, and the
// *hybridlimit.InvalidError of a limit from LimitFor. Nothing is held then.
func (l *ConcurrencyLimiter) AcquireN(ctx context.Context, key string, n int64) (permit hybridlimit.Permit, res hybridlimit.Result, err error) {
	if err := ctx.Err(); err != nil {
		return permit, res, fmt.Errorf("local: %w", err)
	}
	var at permitPlace
	if err := l.lock(&at, key, n); err != nil {
		return permit, res, err
	}
	c := at.held
	if c != nil && c.own != at.own {
		c.own = at.own
		at.serve(c) // under the new limit, the calls that wait come first
	}
	most, free, now := at.free(n)
	switch {
	case now:
		if c == nil {
			if c = at.enter(at.hash, key, at.own); c == nil {
				at.mu.Unlock()
				return permit, res, errTooManyKeys
			}
		}
		c.running += n
		at.mu.Unlock()
		return hybridlimit.NewPermit(c, n), l.answer(most, free-n, n, true), nil
	case n > most || l.cfg.MaxWait == 0:
		if c != nil {
			at.settle(c)
		}
		at.mu.Unlock()
		return permit, l.answer(most, free, n, false), nil
	}
	w := c.push(n)
	at.mu.Unlock()
	return l.wait(ctx, c, w)
}

// wait waits until the call of w is admitted, or until it gives up.
func (l *ConcurrencyLimiter) wait(ctx context.Context, c *permitKey, w *waiter) (permit hybridlimit.Permit, res hybridlimit.Result, gone error) {
	timer := time.NewTimer(l.cfg.MaxWait)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
		gone = fmt.Errorf("local: %w", ctx.Err())
	}
	s := c.shard // the same if the entry is reused for another key
	s.mu.Lock()
	if w.state == waits {
		c.end(w, refused, s.limit(c.own))
		s.serve(c) // it may have kept smaller calls behind it waiting
		w.free = w.most - c.running
		s.settle(c)
	}
	s.mu.Unlock()
	switch {
	case w.state == shut:
		return permit, res, errClosed
	case w.state == served && gone != nil:
		hybridlimit.NewPermit(c, w.n).Release()
	case w.state == served:
		permit = hybridlimit.NewPermit(c, w.n)
	}
	if gone != nil {
		return permit, res, gone
	}
	return permit, l.answer(w.most, w.free, w.n, w.state == served), nil
}

// lock locks the shard of a key for a call of n permits and sets at, unless there is an error.
func (l *ConcurrencyLimiter) lock(at *permitPlace, key string, n int64) error {
	if err := adapter.CheckRequest(key, n, l.cfg.MaxKeyBytes); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	at.own = ofShard
	if l.cfg.LimitFor != nil {
		if limit := l.cfg.LimitFor(key); limit != l.first && limit != *l.base.Load() {
			own, err := permitsOf(limit)
			if err != nil {
				return fmt.Errorf("local: ConcurrencyConfig.LimitFor(%q): %w", key, err)
			}
			at.own = own
		}
	}
	if l.find(at, key); at.closed {
		at.mu.Unlock()
		return errClosed
	}
	return nil
}

// find locks the shard of a key and finds the key.
func (l *ConcurrencyLimiter) find(at *permitPlace, key string) {
	at.hash = maphash.String(l.seed, key)
	at.permitShard = &l.shards[at.hash&uint64(len(l.shards)-1)]
	at.mu.Lock()
	at.held = at.find(at.hash, key)
}

// answer returns the answer to a call of n permits, with those that are free after it.
func (l *ConcurrencyLimiter) answer(most, free, n int64, allowed bool) hybridlimit.Result {
	res := hybridlimit.Result{
		Allowed: allowed, Limit: most, Remaining: max(0, free), Source: hybridlimit.SourceLocal, Policy: l.cfg.Name,
	}
	if most == unlimited {
		res.Source = hybridlimit.SourceStatic
	}
	switch {
	case allowed:
		res.Granted = n
	case n > most:
		res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	default:
		res.RetryAfter = retryHint
	}
	return res
}

// Peek returns the answer that a call of one permit would get without a wait, and acquires nothing. It fails as Acquire
// does.
func (l *ConcurrencyLimiter) Peek(_ context.Context, key string) (hybridlimit.Result, error) {
	var at permitPlace
	if err := l.lock(&at, key, 1); err != nil {
		return hybridlimit.Result{}, err
	}
	most, free, now := at.free(1)
	at.mu.Unlock()
	res := l.answer(most, free, 1, now)
	res.Granted = 0
	return res, nil
}

// Running returns the number of permits of a key that are held. It works after Close too.
func (l *ConcurrencyLimiter) Running(key string) int64 {
	var at permitPlace
	l.find(&at, key)
	defer at.mu.Unlock()
	if at.held == nil {
		return 0
	}
	return at.held.running
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
