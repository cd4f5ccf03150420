package rivals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/local"
)

// spare returns the MaxKeys for our limiters whose keys must all fit. It is larger than the number of keys, because
// keys are hashed over shards, and some shards get more than others.
func spare(keys int) int { return keys + keys/4 + 16 }

var ourLocal = Rival{
	Name: "local", What: "Limiter.Allow", Bounded: true,
	Open: func(env Env) (Limiter, error) {
		// The other limiters in memory also keep a key whose bucket is full again.
		idle := max(time.Hour, env.Limit.TimeToFull())
		most := spare(env.Keys)
		if env.Full {
			most = env.Keys
		}
		l, err := local.New(env.Limit, local.Config{MaxKeys: most, IdleAfter: idle})
		return localLimiter{l}, err
	},
}

type localLimiter struct{ l *local.Limiter }

func (a localLimiter) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		res, err := a.l.Allow(ctx, key)
		if err != nil {
			return allowed, err
		}
		if res.Allowed {
			allowed++
		}
	}
	return allowed, nil
}

func (a localLimiter) Close() error { return a.l.Close() }

var ourGlobal = Rival{
	Name: "global", What: "Limiter.Allow", Where: InRedis,
	Open: func(env Env) (Limiter, error) {
		// The other limiters wait as long as the client does.
		l, err := global.New(env.Redis, env.Limit, global.Config{Name: name(env), Timeout: 3 * time.Second})
		return globalLimiter{l}, err
	},
}

func name(env Env) string { return cmp.Or(env.Name, "bench") }

type globalLimiter struct{ l *global.Limiter }

func (a globalLimiter) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		res, err := a.l.Allow(ctx, key)
		if err != nil {
			return allowed, err
		}
		if res.Allowed {
			allowed++
		}
	}
	return allowed, nil
}

func (a globalLimiter) Close() error { return a.l.Close() }

// ourHybrid is a limiter with default settings, in a fleet of one process.
var ourHybrid = Rival{
	Name: "hybrid", What: "Limiter.Allow", Where: InBoth,
	Open: func(env Env) (Limiter, error) {
		w, err := openHybrid(env)
		return hybridLimiter{w}, err
	},
}

func openHybrid(env Env) (warmed, error) {
	l, err := hybrid.New(env.Redis, env.Limit, hybrid.Config{
		Name: name(env), MaxKeys: spare(env.Keys), MaxWait: env.Patience,
	})
	return warmed{l, env.Limit.BurstSize() >= 20}, err // credit is 5 % of the burst
}

// warmed is the common part of both adapters for hybrid.
type warmed struct {
	l      *hybrid.Limiter
	credit bool // the limit is large enough for credit in a fleet of one
}

// Warm waits until the fleet size is known, and until there is credit if the limit permits any.
func (w warmed) Warm(ctx context.Context) error {
	if err := w.l.Ready(ctx); err != nil {
		return err
	}
	return until(ctx, func() bool { return w.l.Stats().Credit > 0 || !w.credit })
}

// Settle waits until nothing is owed and leases have ended.
func (w warmed) Settle(ctx context.Context) error {
	return until(ctx, func() bool { s := w.l.Stats(); return s.Owed == 0 && s.Held == 0 })
}

// until polls cond at long intervals, because a visit of a million keys takes time.
func until(ctx context.Context, cond func() bool) error {
	for !cond() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("rivals: hybrid is not warm: %w", ctx.Err())
		}
	}
	return nil
}

func (w warmed) Sources() map[hybridlimit.Source]int64 {
	out := map[hybridlimit.Source]int64{}
	s := w.l.Stats()
	for _, of := range []map[hybridlimit.Source]int64{s.Allowed, s.Denied} {
		for source, n := range of {
			out[source] += n
		}
	}
	return out
}

func (w warmed) Close() error { return w.l.Close() }

type hybridLimiter struct{ warmed }

func (a hybridLimiter) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		res, err := a.l.Allow(ctx, key)
		if err != nil {
			return allowed, err
		}
		if res.Allowed {
			allowed++
		}
	}
	return allowed, nil
}

// ourBucket is the same limiter through the handle of one key.
var ourBucket = Rival{
	Name: "hybrid_Bucket", What: "Limiter.Handle(key), Handle.Allow", Where: InBoth, Single: true,
	Open: func(env Env) (Limiter, error) {
		w, err := openHybrid(env)
		if err != nil {
			return nil, err
		}
		return bucketLimiter{w, w.l.Handle("key")}, nil
	},
}

type bucketLimiter struct {
	warmed
	b *hybrid.Handle
}

func (a bucketLimiter) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for range keys {
		res, err := a.b.Allow(ctx)
		if err != nil {
			return allowed, err
		}
		if res.Allowed {
			allowed++
		}
	}
	return allowed, nil
}

// ourJoint asks two limits of one hub at once, all or nothing.
var ourJoint = Rival{
	Name: "hybrid_AllowAll", What: "AllowAll of two limits of a hub", Where: InBoth, Single: true,
	Open: func(env Env) (Limiter, error) {
		h, err := hybrid.NewHub(env.Redis, hybrid.HubConfig{})
		if err != nil {
			return nil, err
		}
		a := &jointLimiter{hub: h}
		for i := range a.limiters {
			l, err := h.Limiter(env.Limit, hybrid.Config{
				Name: fmt.Sprint(name(env), i), MaxKeys: spare(env.Keys), MaxWait: env.Patience,
			})
			if err != nil {
				return nil, errors.Join(err, h.Close())
			}
			a.limiters[i] = warmed{l, env.Limit.BurstSize() >= 20}
		}
		// AllowAll writes into the asks, so a goroutine has its own.
		a.asks.New = func() any {
			return &[2]hybridlimit.Ask{{Limiter: a.limiters[0].l, Key: "key", N: 1}, {Limiter: a.limiters[1].l, Key: "key", N: 1}}
		}
		return a, nil
	},
}

type jointLimiter struct {
	hub      *hybrid.Hub
	limiters [2]warmed
	asks     sync.Pool // of *[2]hybridlimit.Ask
}

func (a *jointLimiter) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	asks := a.asks.Get().(*[2]hybridlimit.Ask)
	defer a.asks.Put(asks)
	for range keys {
		res, err := hybridlimit.AllowAll(ctx, asks[:]...)
		if err != nil {
			return allowed, err
		}
		if res.Allowed {
			allowed++
		}
	}
	return allowed, nil
}

func (a *jointLimiter) Warm(ctx context.Context) error {
	return errors.Join(a.limiters[0].Warm(ctx), a.limiters[1].Warm(ctx))
}

func (a *jointLimiter) Settle(ctx context.Context) error {
	return errors.Join(a.limiters[0].Settle(ctx), a.limiters[1].Settle(ctx))
}

// Sources returns the sources of the first limit's part.
func (a *jointLimiter) Sources() map[hybridlimit.Source]int64 { return a.limiters[0].Sources() }

func (a *jointLimiter) Close() error { return a.hub.Close() }
