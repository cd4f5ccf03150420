package local

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// must makes a limiter that is closed when the test ends.
func must(tb testing.TB, limit hybridlimit.Limit, cfg Config) *Limiter {
	tb.Helper()
	l, err := New(limit, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// fataler is the common part of testing.T and rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// at makes a limiter with one shard. It returns the time at which its clock starts.
func at(tb fataler, limit hybridlimit.Limit, cfg Config) (*Limiter, time.Time) {
	tb.Helper()
	return sharded(tb, limit, cfg, 1)
}

// sharded is at with the given number of shards.
func sharded(tb fataler, limit hybridlimit.Limit, cfg Config, shards int) (*Limiter, time.Time) {
	tb.Helper()
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return newLimiter(limit, cfg.withDefaults(limit), shards, start), start
}

// ask fails the test on any error.
func ask(tb fataler, l *Limiter, now time.Time, key string, n int64) hybridlimit.Result {
	tb.Helper()
	res, err := l.allowAt(now, key, n)
	if err != nil {
		tb.Fatalf("allowAt(%v, %q, %d): %v", now, key, n, err)
	}
	return res
}

// mustPeek peeks at the key "k".
func mustPeek(tb fataler, l *Limiter, now time.Time) hybridlimit.Result {
	tb.Helper()
	res, err := l.peekAt(now, "k")
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

// everyAlgorithm returns a limit of each algorithm: n per period, with a burst of n.
func everyAlgorithm(n int64, per time.Duration) []hybridlimit.Limit {
	return []hybridlimit.Limit{
		hybridlimit.TokenBucket(n, per, n),
		hybridlimit.LeakyBucket(n, per, n),
		hybridlimit.LeakyQueue(n, per, n),
		hybridlimit.FixedWindow(n, per),
		hybridlimit.SlidingWindow(n, per),
		hybridlimit.SlidingLog(n, per),
	}
}

// eachAlgorithm runs f for n per period.
func eachAlgorithm(t *testing.T, n int64, per time.Duration, f func(t *testing.T, limit hybridlimit.Limit)) {
	t.Helper()
	for _, limit := range everyAlgorithm(n, per) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) { f(t, limit) })
	}
}

// when returns a view of the limiter whose clock shows a time.
func (l *Limiter) when(now time.Time) *Limiter { return l.by(func() time.Time { return now }) }

// by returns a view of the limiter with another clock.
func (l *Limiter) by(clock func() time.Time) *Limiter {
	view := *l
	view.clock = func() time.Duration { return clock().Sub(l.start) }
	return &view
}

// from returns a context with a request id, which may be empty.
func from(request string) context.Context {
	if request == "" {
		return context.Background()
	}
	ctx, err := hybridlimit.WithRequestID(context.Background(), request)
	if err != nil {
		panic(err)
	}
	return ctx
}

// The methods below are the verbs at a given time.

func (l *Limiter) allowAt(now time.Time, key string, n int64) (hybridlimit.Result, error) {
	return l.when(now).AllowN(context.Background(), key, n)
}

func (l *Limiter) allowLimitAt(now time.Time, key string, n int64, limit hybridlimit.Limit, request string) (hybridlimit.Result, error) {
	return l.when(now).AllowLimit(from(request), key, n, limit)
}

func (l *Limiter) peekAt(now time.Time, key string) (hybridlimit.Result, error) {
	return l.when(now).Peek(context.Background(), key)
}

func (l *Limiter) setLimitAt(now time.Time, limit hybridlimit.Limit) error {
	return l.when(now).SetLimit(limit)
}

func (l *Limiter) atMostAt(now time.Time, key string, n int64, request string) (hybridlimit.Result, error) {
	return l.when(now).AllowAtMost(from(request), key, n)
}

func (l *Limiter) chargeAt(now time.Time, key string, n int64, request string) (hybridlimit.Result, error) {
	return l.when(now).Charge(from(request), key, n)
}

func (l *Limiter) refundAt(now time.Time, key string, n int64) (hybridlimit.Result, error) {
	return l.when(now).Refund(context.Background(), key, n)
}

func (l *Limiter) reserveAt(clock func() time.Time, key string, n int64, request string) (*hybridlimit.Reservation, error) {
	return l.by(clock).Reserve(from(request), key, n)
}

// held returns the entry of a key that is held.
func (l *Limiter) held(key string) *entry {
	e, _ := l.shards[l.index(key)].keys.Peek(key)
	return e
}
