package hybrid

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Bucket is a handle of one key, for callers that know theirs: a decision
// skips the lookup, which is half of what it costs. It decides as the limiter
// does, and is safe for concurrent use.
type Bucket struct {
	l   *Limiter
	key string
	e   atomic.Pointer[entry] // nil, or evicted: the next call finds the key's own
}

// Bucket returns a handle of key. It costs nothing to keep: the key may be
// evicted meanwhile, and comes back with the next call. What is wrong with the
// key each call says.
func (l *Limiter) Bucket(key string) *Bucket { return &Bucket{l: l, key: strings.Clone(key)} }

// Allow is AllowN with a cost of 1. It is written out: see Limiter.common.
func (b *Bucket) Allow(ctx context.Context) (res hybridlimit.Result, err error) {
	if e := b.e.Load(); e != nil {
		if r := e.plan.Load(); r.From != account.FromCall && b.l.common(e, r, 1, &res) {
			return res, nil
		}
	}
	return b.slow(ctx, 1)
}

// AllowN is Limiter.AllowN of the handle's key.
func (b *Bucket) AllowN(ctx context.Context, n int64) (res hybridlimit.Result, err error) {
	if e := b.e.Load(); e != nil && n > 0 {
		if r := e.plan.Load(); r.From != account.FromCall && b.l.common(e, r, n, &res) {
			return res, nil
		}
	}
	return b.slow(ctx, n)
}

// slow is AllowN, and finds the key's entry for the next call.
func (b *Bucket) slow(ctx context.Context, n int64) (hybridlimit.Result, error) {
	res, err := b.l.AllowN(ctx, b.key, n)
	if e := b.l.store.get(b.key); e != nil && e != b.e.Load() {
		b.e.Store(e)
	}
	return res, err
}
