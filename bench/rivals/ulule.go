package rivals

import (
	"context"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/hybridlimit/hybridlimit"
)

const ululeModule = "github.com/ulule/limiter/v3"

// ululeMemory counts fixed windows that begin with the first call.
var ululeMemory = Rival{
	Name: "ulule", Module: ululeModule, What: "memory store, Limiter.Get",
	Open: func(env Env) (Limiter, error) {
		s := memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "ulule", CleanUpInterval: time.Hour})
		return getter{limiter.New(s, ululeRate(env.Limit))}, nil
	},
}

var ululeRedis = Rival{
	Name: "ulule_redis", Module: ululeModule, What: "Redis store, Limiter.Get", Where: InRedis,
	Open: func(env Env) (Limiter, error) {
		s, err := redis.NewStoreWithOptions(env.Redis, limiter.StoreOptions{Prefix: "ulule" + env.Name})
		return getter{limiter.New(s, ululeRate(env.Limit))}, err
	},
}

func ululeRate(l hybridlimit.Limit) limiter.Rate {
	return limiter.Rate{Limit: l.Rate, Period: l.Period}
}

type getter struct{ l *limiter.Limiter }

func (g getter) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		c, err := g.l.Get(ctx, key)
		if err != nil {
			return allowed, err
		}
		if !c.Reached {
			allowed++
		}
	}
	return allowed, nil
}

func (getter) Close() error { return nil }
