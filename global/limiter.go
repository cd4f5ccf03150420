package global

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Limiter decides by asking Redis. It is safe for concurrent use and starts
// no goroutine of its own beyond a call in progress.
type Limiter struct {
	limit  hybridlimit.Limit
	bucket algo.Bucket
	cfg    Config
	names  lua.Names
	runner *Runner
	closed atomic.Bool
}

var _ hybridlimit.Limiter = (*Limiter)(nil)

// New makes a limiter. It does not connect: a Redis that is down shows as
// ErrUnavailable at the first decision. The client stays the caller's to
// close, after the limiter.
func New(rdb redis.UniversalClient, limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	cfg = cfg.withDefaults()
	runner, err := NewRunner(rdb, cfg.Timeout)
	if err := errors.Join(err, cfg.violations(limit)); err != nil {
		return nil, err
	}
	if limit.Algorithm != hybridlimit.AlgTokenBucket {
		return nil, fmt.Errorf("global: %w: Limit.Algorithm (%v)", hybridlimit.ErrUnsupported, limit.Algorithm)
	}
	return &Limiter{
		limit: limit, bucket: algo.BucketOf(limit), cfg: cfg, runner: runner,
		names: lua.Names{Prefix: cfg.Prefix, Tags: cfg.Tags},
	}, nil
}

// Close refuses further decisions and waits for calls in progress. It is
// idempotent.
func (l *Limiter) Close() error {
	l.closed.Store(true)
	l.runner.Close()
	return nil
}

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN asks Redis for n units of key, all or none: one message, one round
// trip. With ErrUnavailable the Result holds what Config.FailOpen says, and
// the units may or may not have been consumed. With ctx's own error they may
// have been consumed as well: it ended while Redis was deciding.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if l.closed.Load() {
		return hybridlimit.Result{}, hybridlimit.ErrClosed
	}
	if err := hybridlimit.CheckRequest(key, n, l.cfg.MaxKeyBytes); err != nil {
		return hybridlimit.Result{}, err
	}
	res := hybridlimit.Result{Limit: l.limit.BurstSize(), Policy: l.cfg.Name}
	if n > res.Limit {
		res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
		return res, nil
	}
	ans, err := l.ask(ctx, key, algo.Op{Asks: []int64{n}})
	if err != nil {
		if errors.Is(err, hybridlimit.ErrClosed) {
			return hybridlimit.Result{}, err
		}
		if ctx.Err() != nil {
			return res, ctx.Err()
		}
		res.Source, res.Allowed = hybridlimit.SourceFallback, l.cfg.FailOpen
		if res.Allowed {
			res.Granted = n
		} else {
			res.RetryAfter = l.cfg.Timeout
		}
		return res, fmt.Errorf("global: %w: %w", hybridlimit.ErrUnavailable, err)
	}
	res.Source = hybridlimit.SourceRedis
	res.Granted, res.Allowed = ans.Granted, ans.Granted == n
	res.Remaining = l.bucket.Units(ans.Level)
	res.ResetAfter = time.Duration(l.bucket.WaitFull(ans.Level)) * time.Microsecond
	if !res.Allowed {
		res.RetryAfter = time.Duration(ans.Retry) * time.Microsecond
	}
	return res, nil
}

func (l *Limiter) ask(ctx context.Context, key string, op algo.Op) (lua.Answer, error) {
	subject := key
	if l.cfg.Subject != nil {
		subject = l.cfg.Subject(key)
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	reply, err := l.runner.Batch(ctx, lua.Envelope{}, []lua.Op{{
		Key: l.names.State(l.names.Tag(subject), l.cfg.Name, key), Limit: l.limit, Op: op,
	}})
	if err != nil {
		return lua.Answer{}, err
	}
	return reply.Answers[0], nil
}
