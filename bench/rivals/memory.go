package rivals

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	limiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
)

// sethvargo counts intervals, with one bucket and lock for each key. An interval refills interval/tokens (in ns) units
// instead of tokens. So a limiter with more tokens than √interval is stricter than its limit: 10⁹ a second admits one a
// second from the second second on. The adapter expresses such a limit per hour, so that no measurement reaches the end
// of an interval.
var sethvargo = Rival{
	Name: "sethvargo", Module: "github.com/sethvargo/go-limiter", What: "memorystore Take",
	Open: func(env Env) (Limiter, error) {
		tokens, interval := uint64(env.Limit.Rate), env.Limit.Period
		if perSecond(env.Limit) >= 1e9 {
			tokens, interval = tokens*uint64(time.Hour/interval), time.Hour
		}
		s, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: interval, SweepInterval: time.Hour})
		return taker{s}, err
	},
}

type taker struct{ s limiter.Store }

func (t taker) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		_, _, _, ok, err := t.s.Take(ctx, key)
		if err != nil {
			return allowed, err
		}
		if ok {
			allowed++
		}
	}
	return allowed, nil
}

func (t taker) Close() error { return t.s.Close(context.Background()) }

// failsafe is one limiter without keys, like the policy of an executor. The bursty one counts periods.
var failsafe = Rival{
	Name: "failsafe-go", Module: "github.com/failsafe-go/failsafe-go", What: "bursty RateLimiter.TryAcquirePermit", Single: true,
	Open: func(env Env) (Limiter, error) {
		return permits{ratelimiter.NewBursty[any](uint(env.Limit.Rate), env.Limit.Period)}, nil
	},
}

type permits struct{ l ratelimiter.RateLimiter[any] }

func (p permits) Decide(_ context.Context, keys []string) (allowed int, err error) {
	for range keys {
		if p.l.TryAcquirePermit() {
			allowed++
		}
	}
	return allowed, nil
}

func (permits) Close() error { return nil }
