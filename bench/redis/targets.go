package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
)

// target is a limiter under load.
type target struct {
	allow func(ctx context.Context, key string) (allowed bool, err error)
	both  func(ctx context.Context, key, tenant string) (allowed bool, err error) // under two limits; nil except for modeKinds
	close func()
	stats func() hybrid.Stats // nil except for hybrid
}

// kind makes a target whose traffic w counts. The limit is a token bucket whose burst is its rate.
type kind struct {
	name string
	make func(ctx context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error)
}

// hotKey is the key that all callers ask for.
const hotKey = "customer-00000042"

// kinds has the limiters of hybridlimit, and the others for comparison. They treat
// an unknown key differently, which has no effect on the figures here.
var kinds = []kind{
	{"hybrid", newHybrid},
	{"global", newGlobal},
	{"redis_rate", newRedisRate},
	{"ulule/limiter", func(_ context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error) {
		rdb := srv.client(w)
		store, err := ululeredis.NewStoreWithOptions(rdb, ulule.StoreOptions{Prefix: "ulule"})
		if err != nil {
			rdb.Close()
			return target{}, err
		}
		l := ulule.New(store, ulule.Rate{Period: limit.Period, Limit: limit.Rate})
		return target{allow: func(ctx context.Context, key string) (bool, error) {
			r, err := l.Get(ctx, key)
			return !r.Reached, err
		}, close: closing(rdb)}, nil
	}},
	{"throttled", func(_ context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error) {
		rdb := srv.client(w)
		store, err := goredisstore.NewCtx(rdb, "throttled:")
		if err != nil {
			rdb.Close()
			return target{}, err
		}
		rate := int(limit.Rate)
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(rate, limit.Period), MaxBurst: rate})
		return target{allow: func(ctx context.Context, key string) (bool, error) {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return !limited, err
		}, close: closing(rdb)}, err
	}},
	{"go-zero TokenLimiter", newZero},
}

// modeKinds are the limiters of which fleets are made.
var modeKinds = []kind{
	{"hybrid", memberOf(hybrid.ModeAuto)},
	{"hybrid, deferred", memberOf(hybrid.ModeDeferred)},
	{"hybrid, strict", memberOf(hybrid.ModeStrict)},
	{"global", newGlobal},
	{"redis_rate", newRedisRate},
}

// kindsOf returns kinds of fleets by name.
func kindsOf(names ...string) (out []kind) {
	for _, k := range modeKinds {
		if slices.Contains(names, k.name) {
			out = append(out, k)
		}
	}
	return out
}

// ofTenants returns the limit of a tenant.
func ofTenants(limit hybridlimit.Limit) hybridlimit.Limit {
	limit.Rate, limit.Burst = tenantFactor*limit.Rate, tenantFactor*limit.BurstSize()
	return limit
}

// together returns a call under two limits.
func together(key, tenant hybridlimit.Limiter) func(ctx context.Context, k, t string) (bool, error) {
	return func(ctx context.Context, k, t string) (bool, error) {
		r, err := hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: key, Key: k, N: 1}, hybridlimit.Ask{Limiter: tenant, Key: t, N: 1})
		return r.Allowed, err
	}
}

func newGlobal(_ context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error) {
	rdb := srv.client(w)
	l, err := global.New(rdb, limit, global.Config{Name: "global"})
	second, err2 := global.New(rdb, ofTenants(limit), global.Config{Name: "tenants"})
	if err = errors.Join(err, err2); err != nil {
		rdb.Close()
		return target{}, err
	}
	t, err := limited(l, rdb, nil, func() { l.Close(); second.Close() })
	t.both = together(l, second)
	return t, err
}

func newRedisRate(_ context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error) {
	rdb := srv.client(w)
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
		close: closing(rdb),
	}, nil
}

func closing(rdb *redis.Client) func() { return func() { rdb.Close() } }

// limited returns a target for a limiter of hybridlimit.
func limited(l hybridlimit.Limiter, rdb *redis.Client, err error, end func()) (target, error) {
	if err != nil {
		rdb.Close()
		return target{}, err
	}
	return target{allow: func(ctx context.Context, key string) (bool, error) {
		r, err := l.Allow(ctx, key)
		return r.Allowed, err
	}, close: func() { end(); rdb.Close() }}, nil
}

var quiet = slog.New(slog.DiscardHandler)

// newHybrid returns a limiter that is alone in its fleet and knows it.
func newHybrid(ctx context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error) {
	return joined(ctx, srv, w, limit, hybrid.ModeAuto, settled)
}

// memberOf makes limiters of a fleet. They may not know all others yet.
func memberOf(mode hybrid.Mode) func(ctx context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error) {
	return func(ctx context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error) {
		return joined(ctx, srv, w, limit, mode, func(ctx context.Context, l *hybrid.Limiter) error { return l.Ready(ctx) })
	}
}

func joined(ctx context.Context, srv *server, w *wire, limit hybridlimit.Limit, mode hybrid.Mode, wait func(context.Context, *hybrid.Limiter) error) (target, error) {
	rdb := srv.client(w)
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: quiet})
	if err != nil {
		rdb.Close()
		return target{}, err
	}
	l, err := hub.Limiter(limit, hybrid.Config{Name: "hybrid", Mode: mode})
	second, err2 := hub.Limiter(ofTenants(limit), hybrid.Config{Name: "tenants", Mode: mode})
	if err = errors.Join(err, err2); err == nil {
		err = wait(ctx, l)
	}
	if err != nil {
		hub.Close()
		rdb.Close()
		return target{}, err
	}
	t, err := limited(l, rdb, nil, func() { hub.Shutdown(context.Background()) })
	t.stats, t.both = l.Stats, together(l, second)
	return t, err
}

// settled waits until a limiter knows the fleet size. From then on it behaves as in a process that has run for a while.
func settled(ctx context.Context, l *hybrid.Limiter) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		return err
	}
	for l.Stats().Credit == 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("no credit after 30 s: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// newZero makes a limiter with a single key, because go-zero has no limiter with
// many keys. The period of the limit must be a second.
func newZero(ctx context.Context, srv *server, w *wire, limit hybridlimit.Limit) (target, error) {
	store, err := zeroredis.NewRedis(zeroredis.RedisConf{Host: srv.addr, Type: zeroredis.NodeType, NonBlock: true}, zeroredis.WithHook(w))
	if err != nil {
		return target{}, err
	}
	others, err := srv.connections(ctx)
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
		if err := srv.endConnections(ctx, others); err != nil {
			return target{}, err
		}
		for range 200 {
			l.AllowCtx(ctx)
		}
		before := w.traffic().messages
		l.AllowCtx(ctx)
		if w.traffic().messages > before {
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
