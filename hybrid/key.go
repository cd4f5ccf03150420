package hybrid

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Key is a handle of one key, for callers that use the same key often. A decision
// skips the lookup, which is half of its cost. It decides as the limiter does,
// with any algorithm. It is safe for concurrent use.
type Key struct {
	l   *Limiter
	key string
	e   atomic.Pointer[keys.Entry] // nil or evicted: the next call looks the entry up
}

// Key returns a handle of key. Keeping it does not keep the key in memory: the key
// may be evicted, and comes back with the next call. Key does not check the key:
// with an invalid key each call of the handle returns the error.
func (l *Limiter) Key(key string) *Key { return &Key{l: l, key: strings.Clone(key)} }

// Allow is AllowN with a cost of 1. It is written out: see Limiter.common.
func (k *Key) Allow(ctx context.Context) (res hybridlimit.Result, err error) {
	if e := k.e.Load(); e != nil {
		if r := e.Plan.Load(); r.From != account.FromCall && k.l.terms.Common(e, r, 1, &res) {
			return res, nil
		}
	}
	return k.slow(ctx, 1)
}

// AllowN is Limiter.AllowN of the handle's key.
func (k *Key) AllowN(ctx context.Context, n int64) (res hybridlimit.Result, err error) {
	if e := k.e.Load(); e != nil && n > 0 {
		if r := e.Plan.Load(); r.From != account.FromCall && k.l.terms.Common(e, r, n, &res) {
			return res, nil
		}
	}
	return k.slow(ctx, n)
}

// slow is AllowN, and stores the key's entry for the next call.
func (k *Key) slow(ctx context.Context, n int64) (hybridlimit.Result, error) {
	res, err := k.l.AllowN(ctx, k.key, n)
	if e := k.l.terms.Store.Get(k.key); e != nil && e != k.e.Load() {
		k.e.Store(e)
	}
	return res, err
}
