package rivals

import (
	"context"

	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
)

const throttledModule = "github.com/throttled/throttled/v2"

// throttledMemory keeps keys in a map without a bound, which is its faster store. Both stores compare and swap. A call
// gives up after ten attempts if others are always first.
var throttledMemory = Rival{
	Name: "throttled", Module: throttledModule, What: "memstore without a bound, RateLimitCtx", GivesUp: true,
	Open: func(env Env) (Limiter, error) {
		s, err := memstore.NewCtx(0)
		if err != nil {
			return nil, err
		}
		return newThrottled(s, env)
	},
}

var throttledRedis = Rival{
	Name: "throttled_redis", Module: throttledModule, What: "goredisstore.v9, RateLimitCtx; a call that gives up counts as denied", Where: InRedis, GivesUp: true,
	Open: func(env Env) (Limiter, error) {
		s, err := goredisstore.NewCtx(env.Redis, "throttled"+env.Name)
		if err != nil {
			return nil, err
		}
		return newThrottled(s, env)
	},
}

func newThrottled(s throttled.GCRAStoreCtx, env Env) (Limiter, error) {
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(env.Limit.Rate), env.Limit.Period),
		MaxBurst: int(env.Limit.BurstSize()) - 1,
	})
	return gcra{l}, err
}

type gcra struct{ l *throttled.GCRARateLimiterCtx }

func (g gcra) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		limited, _, err := g.l.RateLimitCtx(ctx, key, 1)
		if err != nil && ctx.Err() != nil {
			return allowed, err
		}
		if err == nil && !limited {
			allowed++
		}
	}
	return allowed, nil
}

func (gcra) Close() error { return nil }
