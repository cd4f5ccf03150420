package rivals

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/local"
)

// spare is how many keys more than there are ours are made for: keys are
// hashed over shards, of which some get more than others.
func spare(keys int) int { return keys + keys/4 + 16 }

var ourLocal = Rival{
	Name: "local", What: "Limiter.Allow",
	Open: func(env Env) (Limiter, error) {
		l, err := local.New(env.Limit, local.Config{MaxKeys: spare(env.Keys)})
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
		// Others wait for as long as the client does.
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

// ourHybrid is the default one, of a fleet that turns out to be itself alone.
var ourHybrid = Rival{
	Name: "hybrid", What: "Limiter.Allow", Where: InBoth,
	Open: func(env Env) (Limiter, error) {
		l, err := openHybrid(env)
		return hybridLimiter{warmed{l}}, err
	},
}

func openHybrid(env Env) (*hybrid.Limiter, error) {
	return hybrid.New(env.Redis, env.Limit, hybrid.Config{
		Name: name(env), MaxKeys: spare(env.Keys), MaxWait: env.Patience,
	})
}

// warmed is what both forms have in common.
type warmed struct{ l *hybrid.Limiter }

// Warm waits until the fleet is known and gives credit, and until a limiter
// that has run for so long may take a key that it does not know for full.
func (w warmed) Warm(ctx context.Context) error {
	if err := w.l.Ready(ctx); err != nil {
		return err
	}
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		if w.l.Stats().Credit > 0 {
			break // a limit without credit waits for as long as it would take
		}
		select {
		case <-t.C:
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

// ourBucket is the same by the handle of one key.
var ourBucket = Rival{
	Name: "hybrid_Bucket", What: "Limiter.Bucket(key), Bucket.Allow", Where: InBoth, Single: true,
	Open: func(env Env) (Limiter, error) {
		l, err := openHybrid(env)
		if err != nil {
			return nil, err
		}
		return bucketLimiter{warmed{l}, l.Bucket("key")}, nil
	},
}

type bucketLimiter struct {
	warmed
	b *hybrid.Bucket
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
