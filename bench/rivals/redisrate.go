package rivals

import (
	"context"

	redisrate "github.com/go-redis/redis_rate/v10"
)

// redisRate runs a script for each decision.
var redisRate = Rival{
	Name: "redis_rate", Module: "github.com/go-redis/redis_rate/v10", What: "Limiter.Allow", Where: InRedis,
	Open: func(env Env) (Limiter, error) {
		l := env.Limit
		return scripted{
			redisrate.NewLimiter(env.Redis), env.Name,
			redisrate.Limit{Rate: int(l.Rate), Burst: int(l.BurstSize()), Period: l.Period},
		}, nil
	},
}

type scripted struct {
	l      *redisrate.Limiter
	prefix string // prefix of each key; may be empty
	limit  redisrate.Limit
}

func (s scripted) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		if s.prefix != "" {
			key = s.prefix + key
		}
		res, err := s.l.Allow(ctx, key, s.limit)
		if err != nil {
			return allowed, err
		}
		if res.Allowed > 0 {
			allowed++
		}
	}
	return allowed, nil
}

func (scripted) Close() error { return nil }
