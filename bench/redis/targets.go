package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	zerolimit "github.com/zeromicro/go-zero/core/limit"
	zeroredis "github.com/zeromicro/go-zero/core/stores/redis"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// target is a limiter under load.
type target struct {
	allow func(ctx context.Context, key string) (allowed bool, err error)
	// both asks under two limits. It is nil except for modeKinds.
	both  func(ctx context.Context, key, tenant string) (allowed bool, err error)
	close func()
	stats func() hybrid.Stats // nil except for hybrid
}

// maker makes a target on the Redis at addr, whose traffic w counts. The limit is a token bucket whose burst is its
// rate.
type maker func(ctx context.Context, addr string, w *benchkit.Wire, limit hybridlimit.Limit) (target, error)

// kind is a kind of limiter.
type kind struct {
	name string
	make maker
}

// hotKey is the key that all callers ask for.
const hotKey = "customer-00000042"

// kinds has the limiters of hybridlimit, and the others for comparison. They treat
// an unknown key differently, which has no effect on the figures here.
var kinds = []kind{
	{"hybrid", hybridOf(hybrid.ModeAuto, settled)}, // alone in its fleet, and knows it
	{"global", newGlobal},
	{"redis_rate", newRedisRate},
	{"ulule/limiter", on(func(_ context.Context, rdb *redis.Client, limit hybridlimit.Limit) (target, error) {
		store, err := ululeredis.NewStoreWithOptions(rdb, ulule.StoreOptions{Prefix: "ulule"})
		l := ulule.New(store, ulule.Rate{Period: limit.Period, Limit: limit.Rate})
		return target{allow: func(ctx context.Context, key string) (bool, error) {
			r, err := l.Get(ctx, key)
			return !r.Reached, err
		}}, err
	})},
	{"throttled", on(func(_ context.Context, rdb *redis.Client, limit hybridlimit.Limit) (target, error) {
		store, err := goredisstore.NewCtx(rdb, "throttled:")
		rate := int(limit.Rate)
		l, err2 := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate: throttled.PerDuration(rate, limit.Period), MaxBurst: rate,
		})
		return target{allow: func(ctx context.Context, key string) (bool, error) {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return !limited, err
		}}, errors.Join(err, err2)
	})},
	{"go-zero TokenLimiter", newZero},
}

// modeKinds are the limiters of which fleets are made. They may not know all others yet.
var modeKinds = []kind{
	{"hybrid", hybridOf(hybrid.ModeAuto, ready)},
	{"hybrid, deferred", hybridOf(hybrid.ModeDeferred, ready)},
	{"hybrid, strict", hybridOf(hybrid.ModeStrict, ready)},
	{"global", newGlobal},
	{"redis_rate", newRedisRate},
}

// kindsOf returns kinds of fleets by name.
func kindsOf(names ...string) []kind {
	all := slices.Clone(modeKinds)
	for _, k := range hotKinds {
		all = append(all, k.kind)
	}
	return slices.DeleteFunc(all, func(k kind) bool { return !slices.Contains(names, k.name) })
}

// on makes targets on a client, which is closed with the target, or after an error.
func on(open func(context.Context, *redis.Client, hybridlimit.Limit) (target, error)) maker {
	return func(ctx context.Context, addr string, w *benchkit.Wire, limit hybridlimit.Limit) (target, error) {
		rdb := benchkit.ClientOf(addr, w)
		t, err := open(ctx, rdb, limit)
		end := t.close
		t.close = func() {
			if end != nil {
				end()
			}
			rdb.Close()
		}
		if err != nil {
			t.close()
		}
		return t, err
	}
}

// ofTenants returns the limit of a tenant.
func ofTenants(limit hybridlimit.Limit) hybridlimit.Limit {
	limit.Rate, limit.Burst = tenantFactor*limit.Rate, tenantFactor*limit.BurstSize()
	return limit
}

// targetOf returns a target for limiters of hybridlimit: of keys, and of their tenants.
func targetOf(l, tenants hybridlimit.Limiter) target {
	return target{
		allow: func(ctx context.Context, key string) (bool, error) {
			r, err := l.Allow(ctx, key)
			return r.Allowed, err
		},
		both: func(ctx context.Context, key, tenant string) (bool, error) {
			r, err := hybridlimit.AllowAll(ctx,
				hybridlimit.Ask{Limiter: l, Key: key, N: 1}, hybridlimit.Ask{Limiter: tenants, Key: tenant, N: 1})
			return r.Allowed, err
		},
	}
}

var newGlobal = on(func(_ context.Context, rdb *redis.Client, limit hybridlimit.Limit) (target, error) {
	l, err := global.New(rdb, limit, global.Config{Name: "global"})
	tenants, err2 := global.New(rdb, ofTenants(limit), global.Config{Name: "tenants"})
	if err = errors.Join(err, err2); err != nil {
		return target{}, err
	}
	t := targetOf(l, tenants)
	t.close = func() { l.Close(); tenants.Close() }
	return t, nil
})

var newRedisRate = on(func(_ context.Context, rdb *redis.Client, limit hybridlimit.Limit) (target, error) {
	l := redis_rate.NewLimiter(rdb)
	of := func(limit hybridlimit.Limit) redis_rate.Limit {
		return redis_rate.Limit{Rate: int(limit.Rate), Burst: int(limit.BurstSize()), Period: limit.Period}
	}
	own, tenants := of(limit), of(ofTenants(limit))
	allow := func(ctx context.Context, key string, limit redis_rate.Limit) (bool, error) {
		r, err := l.Allow(ctx, key, limit)
		return err == nil && r.Allowed > 0, err
	}
	return target{
		allow: func(ctx context.Context, key string) (bool, error) { return allow(ctx, key, own) },
		both: func(ctx context.Context, key, tenant string) (bool, error) {
			if ok, err := allow(ctx, key, own); !ok || err != nil {
				return ok, err
			}
			return allow(ctx, "tenant:"+tenant, tenants)
		},
	}, nil
})

var quiet = slog.New(slog.DiscardHandler)

// hybridOf makes limiters of a fleet, which wait for something.
func hybridOf(mode hybrid.Mode, wait func(context.Context, *hybrid.Limiter) error) maker {
	return on(func(ctx context.Context, rdb *redis.Client, limit hybridlimit.Limit) (target, error) {
		hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: quiet})
		if err != nil {
			return target{}, err
		}
		end := target{close: func() { hub.Shutdown(context.Background()) }}
		l, err := hub.Limiter(limit, hybrid.Config{Name: "hybrid", Mode: mode})
		tenants, err2 := hub.Limiter(ofTenants(limit), hybrid.Config{Name: "tenants", Mode: mode})
		if err = errors.Join(err, err2); err != nil {
			return end, err
		}
		if err := wait(ctx, l); err != nil {
			return end, err
		}
		t := targetOf(l, tenants)
		t.close, t.stats = end.close, l.Stats
		return t, nil
	})
}

func ready(ctx context.Context, l *hybrid.Limiter) error { return l.Ready(ctx) }

// settled waits until a limiter knows the fleet size. From then on it behaves as in a process that has run for a while.
func settled(ctx context.Context, l *hybrid.Limiter) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		return err
	}
	for l.Stats().Credit == 0 {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("no credit after 30 s: %w", err)
		}
	}
	return nil
}

// newZero makes a limiter with a single key, because go-zero has no limiter with
// many keys. The period of the limit must be a second.
func newZero(ctx context.Context, addr string, w *benchkit.Wire, limit hybridlimit.Limit) (target, error) {
	conf := zeroredis.RedisConf{Host: addr, Type: zeroredis.NodeType, NonBlock: true}
	store, err := zeroredis.NewRedis(conf, zeroredis.WithHook(w))
	if err != nil {
		return target{}, err
	}
	rdb := benchkit.ClientOf(addr, nil)
	defer rdb.Close()
	others, err := connections(ctx, rdb)
	if err != nil {
		return target{}, err
	}
	l := zerolimit.NewTokenLimiter(int(limit.Rate), int(limit.Rate), store, hotKey)
	// Its breaker counts a script that is not loaded yet as a failure. If many callers meet that at once, the breaker
	// opens. Then the process decides without Redis, until a check of Redis every tenth of a second succeeds. Its
	// client also dials before it has the hook. Such connections are not counted, so they are ended here.
	for end := time.Now().Add(10 * time.Second); ; {
		l.AllowCtx(ctx) // creates the client
		time.Sleep(100 * time.Millisecond)
		ids, err := connections(ctx, rdb)
		if err != nil {
			return target{}, err
		}
		for id := range ids {
			if !others[id] {
				rdb.ClientKillByFilter(ctx, "ID", id) // an error: the connection has ended meanwhile
			}
		}
		for range 200 {
			l.AllowCtx(ctx)
		}
		before, _, _ := w.Traffic()
		l.AllowCtx(ctx)
		if now, _, _ := w.Traffic(); now > before {
			break
		}
		if time.Now().After(end) {
			return target{}, errors.New("go-zero sends no command to Redis that is counted")
		}
	}
	return target{allow: func(ctx context.Context, _ string) (bool, error) {
		// AllowCtx returns no error. Without Redis it decides alone, which shows in the number of messages.
		if !l.AllowCtx(ctx) {
			return false, errors.New("denied below the limit")
		}
		return true, nil
	}, close: func() {}}, nil // the client belongs to the package and stays open
}

// connections returns the ids of all connections.
func connections(ctx context.Context, rdb *redis.Client) (ids map[string]bool, err error) {
	list, err := rdb.ClientList(ctx).Result()
	ids = map[string]bool{}
	for line := range strings.Lines(list) {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		ids[id] = true
	}
	return ids, err
}
