package local

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
)

// Limiter is one limit for many keys, in this process only. Make one with New.
// It is safe for concurrent use.
//
// No method waits for anything but a lock that is held for a memory operation,
// so no ctx is consulted: an ended one changes neither the answer nor what is
// charged. The parameter is there for hybridlimit.Limiter.
type Limiter struct {
	cfg    Config // defaults filled in
	arith  arith
	start  time.Time // shard time 0
	seed   maphash.Seed
	shards []shard // a power of two
}

var _ hybridlimit.Limiter = (*Limiter)(nil)

// New makes a limiter for a token bucket. It starts no goroutine.
//
// The error is an *hybridlimit.InvalidError with everything that is wrong with
// limit and cfg, or wraps hybridlimit.ErrUnsupported for another algorithm.
func New(limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	if err := check(limit, cfg, math.MaxInt); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(limit)
	return newLimiter(limit, cfg, shardCount(cfg.MaxKeys), time.Now())
}

// newLimiter wants what check passed, the defaults filled in, and a power of
// two of shards, at most MaxKeys.
func newLimiter(limit hybridlimit.Limit, cfg Config, shards int, start time.Time) (*Limiter, error) {
	l := &Limiter{
		cfg:    cfg,
		arith:  newArith(limit),
		start:  start,
		seed:   maphash.MakeSeed(),
		shards: make([]shard, shards),
	}
	for i := range l.shards {
		room := cfg.MaxKeys / shards
		if i < cfg.MaxKeys%shards {
			room++
		}
		if err := l.shards[i].open(room); err != nil {
			return nil, fmt.Errorf("local: shard of %d keys: %w", room, err)
		}
	}
	return l, nil
}

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(_ context.Context, key string) (hybridlimit.Result, error) {
	return l.allowAt(time.Now(), key, 1)
}

// AllowN takes n units of key, all or none. It fails, and takes nothing, with
// hybridlimit.ErrEmptyKey, ErrKeyTooLong, ErrCost or ErrClosed.
//
// An n above the burst is denied for ever: RetryAfter is hybridlimit.Never,
// Source is SourceStatic, and the rest tells the state of the key, which is
// neither created nor touched.
func (l *Limiter) AllowN(_ context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.allowAt(time.Now(), key, n)
}

func (l *Limiter) allowAt(now time.Time, key string, n int64) (hybridlimit.Result, error) {
	if err := hybridlimit.CheckRequest(key, n, l.cfg.MaxKeyBytes); err != nil {
		return hybridlimit.Result{}, fmt.Errorf("local: %w", err)
	}
	if n > l.arith.burst {
		res, err := l.peekAt(now, key)
		if err == nil {
			res.Allowed, res.RetryAfter, res.Source = false, hybridlimit.Never, hybridlimit.SourceStatic
		}
		return res, err
	}
	s := l.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		return hybridlimit.Result{}, errClosed
	}
	behind := s.tick(now.Sub(l.start))
	now = now.Add(behind)
	tokens := s.find(key, l).tokens

	if tokens.AllowN(now, int(n)) {
		res := l.describe(tokens, now, behind, 0)
		res.Allowed, res.Granted = true, n
		return res, nil
	}
	return l.describe(tokens, now, behind, n), nil
}

// describe tells the state of a key at now, and how long a call of cost n, if
// there is to be one, must wait. Waits count from the caller's time, which is
// behind now.
func (l *Limiter) describe(tokens *rate.Limiter, now time.Time, behind time.Duration, n int64) hybridlimit.Result {
	level := tokens.TokensAt(now)
	res := hybridlimit.Result{
		Limit:     l.arith.burst,
		Remaining: l.arith.remaining(level),
		Source:    hybridlimit.SourceLocal,
		Policy:    l.cfg.Name,
	}
	if d := l.arith.wait(tokens, now, level, n); d > 0 {
		res.RetryAfter = behind + d
	}
	if d := l.arith.wait(tokens, now, level, l.arith.burst); d > 0 {
		res.ResetAfter = behind + d
	}
	return res
}

var errClosed = fmt.Errorf("local: %w", hybridlimit.ErrClosed)

func (l *Limiter) shardOf(key string) *shard {
	return &l.shards[maphash.String(l.seed, key)&uint64(len(l.shards)-1)]
}
