package rivals

import (
	"context"
	"sync"

	"github.com/zeromicro/go-zero/core/limit"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"
	"github.com/zeromicro/go-zero/core/stores/redis"
)

// goZero has a limiter for each key, so the limiters are in a sync.Map. Its rate is a whole number of units a second,
// at least one. Its burst must be at least half a second's units: with less its script sets an expiry of 0 and fails,
// and a limiter in memory answers. The adapter sets a burst of at least a second's units. It connects by itself. Its
// breaker counts NOSCRIPT as a failure, so that many callers at the start would open it and get answers from a limiter
// in memory. Therefore the adapter begins with a single call.
var goZero = Rival{
	Name: "go-zero", Module: "github.com/zeromicro/go-zero", What: "TokenLimiter.AllowCtx", Where: InRedis,
	Open: func(env Env) (Limiter, error) {
		r, err := redis.NewRedis(redis.RedisConf{Host: env.Addr, Type: redis.NodeType, NonBlock: true, MaintNotifications: "disabled"})
		if err != nil {
			return nil, err
		}
		limit.NewTokenLimiter(1, 1, r, "go-zero"+env.Name+"-first").Allow()
		return &tokens{env: env, r: r}, nil
	},
}

// On import, go-zero would write to standard output once a minute.
func init() {
	logx.Disable()
	stat.DisableLog()
}

type tokens struct {
	env Env
	r   *redis.Redis
	m   sync.Map
}

func (t *tokens) Decide(ctx context.Context, keys []string) (allowed int, err error) {
	for _, key := range keys {
		v, ok := t.m.Load(key)
		if !ok {
			rate := max(1, int(perSecond(t.env.Limit)))
			burst := max(rate, int(t.env.Limit.BurstSize()))
			v, _ = t.m.LoadOrStore(key, limit.NewTokenLimiter(rate, burst, t.r, "go-zero"+t.env.Name+key))
		}
		if v.(*limit.TokenLimiter).AllowCtx(ctx) {
			allowed++
		}
	}
	return allowed, nil
}

func (*tokens) Close() error { return nil }
