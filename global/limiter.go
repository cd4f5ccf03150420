package global

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Limiter asks Redis for every decision. It is safe for concurrent use. Its goroutines end with the calls in progress.
type Limiter struct {
	terms    atomic.Pointer[terms]
	setting  sync.Mutex // held while a limit is checked against the old one and replaces it
	cfg      Config
	names    lua.Names
	runner   *runner.Runner
	breakers breakers
	gather   *runner.Gather
	closed   atomic.Bool
	done     chan struct{} // closed by Close: ends every Wait
	lines    waiting.Lines // of Wait
}

var _ hybridlimit.Limiter = (*Limiter)(nil)

// New returns a limiter. It does not connect: if Redis is down, the first decision returns ErrUnavailable. The caller
// closes the client, after the limiter.
//
// New adds two permanent hooks to a client of go-redis. One guards the connections that the client dials from now on: a
// reply to this limiter's commands that is longer than Redis can give is an error. The other records the cause of a
// failed dial, so that the error of a call that waited for a connection names the cause ("connection refused"). Other
// commands on the same client are answered as before.
func New(rdb redis.UniversalClient, limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	cfg = cfg.withDefaults()
	calls, err := runner.New(rdb, cfg.Timeout, runner.WithFunctions(cfg.Functions))
	if err := errors.Join(err, cfg.violations(limit)); err != nil {
		return nil, err
	}
	t, err := newTerms(limit)
	if err != nil {
		return nil, err
	}
	breakers, err := newBreakers(calls, cfg)
	if err != nil {
		return nil, err
	}
	l := &Limiter{cfg: cfg, runner: calls, breakers: breakers, gather: calls.Gather(cfg.Tags, cfg.Timeout, breakers.of), done: make(chan struct{}), names: lua.Names{Prefix: cfg.Prefix, Tags: cfg.Tags, HashKeys: cfg.HashKeys}}
	l.terms.Store(t)
	return l, nil
}

// Close makes further decisions return ErrClosed, and waits for calls in progress. It is idempotent.
func (l *Limiter) Close() error {
	if l.closed.CompareAndSwap(false, true) {
		close(l.done)
	}
	l.runner.Close()
	return nil
}

// Shutdown is Close, but waits no longer than ctx. The calls in progress end by themselves, at most Config.Timeout
// later. It exists so that a program can change the package of its limiter without other changes: nothing is owed.
func (l *Limiter) Shutdown(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("global: limiter %q: calls are in progress: %w", l.cfg.Name, ctx.Err())
	}
}

// Ready waits until Redis has answered and has the script, and tries again until ctx ends. It is for readiness probes.
// The error is hybridlimit.ErrClosed, or ctx's own with the last failure.
func (l *Limiter) Ready(ctx context.Context) error {
	var cause error
	for {
		if l.closed.Load() {
			return hybridlimit.ErrClosed
		}
		bounded, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
		_, err := l.runner.Batch(bounded, wire.Envelope{}, nil)
		cancel()
		if cause == nil || ctx.Err() == nil { // the end of ctx is no cause
			cause = err
		}
		switch {
		case err == nil:
			return nil
		case l.closed.Load():
			return hybridlimit.ErrClosed
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("global: limiter %q is not ready: %w: %w", l.cfg.Name, ctx.Err(), cause)
		case <-l.done:
			return hybridlimit.ErrClosed
		case <-time.After(readyAgain):
		}
	}
}

// readyAgain is the time between two questions of Ready.
const readyAgain = 100 * time.Millisecond

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN asks Redis for n units of key, all or none. It costs one round trip, and at most one message, which concurrent
// calls share. A call that comes while a message of its tag is in flight waits for that one first.
//
// AllowN denies an n above the burst without an error, whether Redis answers or not. It then asks Redis only for
// Remaining and ResetAfter.
//
// With ErrUnavailable, the Result holds the decision of Config.FailOpen, and the units may or may not have been taken.
// After three messages without an answer, calls fail so at once, until Redis answers again (Config.Breaker). With ctx's
// own error, the units may or may not have been taken either: ctx may have ended while Redis decided. If a shared
// message gets no answer, each of its calls gets ErrUnavailable, and the units of each are taken once or not at all.
// The end of ctx concerns no other call.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	t, err := l.of(key, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res, _, err := l.take(ctx, key, t, n, algo.Op{Asks: asks(n)})
	return res, err
}

var one = []int64{1}

// asks returns an ask for n units. It must not be changed.
func asks(n int64) []int64 {
	if n == 1 {
		return one
	}
	return []int64{n}
}

// terms is a limit and the constants derived from it.
type terms struct {
	limit      hybridlimit.Limit
	algo.Scale // zero for a static limit
	// counts is the algorithm of the limiter's last limit that counts. A state in Redis, if there is one, has this
	// algorithm.
	counts hybridlimit.Algorithm
	began  time.Time // time of the SetLimit or the call that brought the limit; zero: long ago
}

func newTerms(limit hybridlimit.Limit) (*terms, error) {
	if err := limit.Validate(); err != nil {
		return nil, err
	}
	if limit.Algorithm == hybridlimit.AlgConcurrent {
		return nil, fmt.Errorf("global: %w: permits of calls in flight (%v) need a heartbeat, which this package does not have: use NewConcurrency of package local, for one process", hybridlimit.ErrUnsupported, limit)
	}
	t := &terms{limit: limit, counts: limit.Algorithm}
	if !t.static() {
		t.Scale = algo.ScaleOf(limit)
	}
	return t, nil
}

// since returns the µs for which the limit has been in force, for algo.Op.Since.
func (t *terms) since() int64 {
	if t.began.IsZero() {
		return 0
	}
	return t.Since(time.Since(t.began).Microseconds())
}

// static reports whether the limit counts nothing: it admits every call, or none. each returns the time in which one
// unit comes back; 0: units do not come back one by one.
func (t *terms) each() time.Duration {
	if t.static() || t.Window.Period > 0 || t.Kind == algo.KindLog {
		return 0
	}
	return time.Duration(t.Bucket.Unit * 1000 / t.Bucket.Refill)
}

func (t *terms) static() bool { return static(t.limit.Algorithm) }

func static(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgUnlimited || a == hybridlimit.AlgBlocked
}

// replaces returns an error if the algorithm of the new limit differs from that of have: usage under one algorithm has
// no meaning under another. Static limits are compatible with all.
func (t *terms) replaces(have *terms) error {
	var bad adapter.Violations
	if t.limit.Algorithm != have.counts && !t.static() && !static(have.counts) {
		bad.Add("Limit.Algorithm", t.limit.Algorithm, "must be the algorithm of the limiter, "+have.counts.String())
	}
	return bad.Err("global")
}

// fixed returns the answer of a static limit.
func (l *Limiter) fixed(t *terms, n int64) hybridlimit.Result {
	res := hybridlimit.Result{Limit: t.limit.BurstSize(), Policy: l.cfg.Name, Source: hybridlimit.SourceStatic}
	if res.Allowed = t.limit.Algorithm == hybridlimit.AlgUnlimited; res.Allowed {
		res.Granted, res.Remaining = n, res.Limit
	} else {
		res.RetryAfter = hybridlimit.Never
	}
	return res
}

// fill returns res with the source and the level of an answer from Redis.
func (t *terms) fill(res hybridlimit.Result, ans wire.Answer) hybridlimit.Result {
	res.Source = hybridlimit.SourceRedis
	res.Remaining = t.Units(ans.Level)
	res.ResetAfter = micros(t.Reset(ans))
	return res
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// check returns the error of a request that cannot be answered.
func (l *Limiter) check(key string, n int64) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	return adapter.CheckRequest(key, n, l.cfg.MaxKeyBytes)
}

// of checks a request and returns the terms of its key. It calls LimitFor.
func (l *Limiter) of(key string, n int64) (*terms, error) {
	if err := l.check(key, n); err != nil {
		return nil, err
	}
	t := l.terms.Load()
	if l.cfg.LimitFor == nil {
		return t, nil
	}
	limit := l.cfg.LimitFor(key)
	if limit == t.limit {
		return t, nil
	}
	own, err := newTerms(limit)
	if err == nil {
		err = own.replaces(t)
	}
	if err != nil {
		return nil, fmt.Errorf("global: Config.LimitFor(%q): %w", key, err)
	}
	return own, nil
}

// take asks Redis for n units. back is the op that gives them back.
func (l *Limiter) take(ctx context.Context, key string, t *terms, n int64, op algo.Op) (res hybridlimit.Result, back algo.Op, err error) {
	if t.static() {
		return l.fixed(t, n), back, nil
	}
	res = l.blank(t)
	if n > res.Limit && !op.Partial {
		res, err = l.never(ctx, key, t)
		return res, back, err
	}
	ans, now, err := l.ask(ctx, key, t, op)
	if err != nil {
		res, err = l.unavailable(ctx, res, n, err)
		return res, back, err
	}
	res = t.fill(res, ans)
	res.Granted, res.Allowed = ans.Granted, ans.Granted == n || op.Partial && ans.Granted > 0
	if res.Delay = micros(ans.Delay); !res.Allowed {
		res.RetryAfter = micros(ans.Retry)
	}
	return res, t.Cancel(ans, now), nil
}

// blank returns a result with the limit and the policy only.
func (l *Limiter) blank(t *terms) hybridlimit.Result {
	return hybridlimit.Result{Limit: t.limit.BurstSize(), Policy: l.cfg.Name}
}

// never returns the answer to a cost above the burst. It asks Redis for the units left. Without an answer, Remaining is
// 0.
func (l *Limiter) never(ctx context.Context, key string, t *terms) (hybridlimit.Result, error) {
	res := l.blank(t)
	ans, _, err := l.ask(ctx, key, t, algo.Op{})
	if errors.Is(err, hybridlimit.ErrClosed) {
		return hybridlimit.Result{}, err
	}
	if err == nil {
		res = t.fill(res, ans)
	}
	return never(res), nil
}

// never turns res into the answer to a cost above the burst.
func never(res hybridlimit.Result) hybridlimit.Result {
	res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	return res
}

// unavailable returns the answer without Redis: the decision of Config.FailOpen on n units, and the error.
func (l *Limiter) unavailable(ctx context.Context, res hybridlimit.Result, n int64, err error) (hybridlimit.Result, error) {
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

// place returns the tag and the Redis key of a caller's key. It calls TagBy.
func (l *Limiter) place(key string) (tag int, name string) {
	by := key
	if l.cfg.TagBy != nil {
		by = l.cfg.TagBy(key)
	}
	tag = l.names.Tag(by)
	return tag, l.names.State(tag, l.cfg.Name, key)
}

// ask sends an op. It returns the answer and its time, in µs of Redis time.
func (l *Limiter) ask(ctx context.Context, key string, t *terms, op algo.Op) (wire.Answer, int64, error) {
	tag, name := l.place(key)
	op.Since = t.since()
	ask := wire.Op{Key: name, Limit: t.limit, Op: op}
	if t.Kind == algo.KindLog { // 56 µs of Redis, for which other ops should not wait
		ask.ID = hybridlimit.RequestID(ctx)
		return l.gather.Alone(ctx, tag, ask)
	}
	return l.gather.Ask(ctx, tag, ask)
}
