package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	close func()
}

// kind makes a target whose traffic w counts. Its limit is rate a second, with a
// burst of the same size.
type kind struct {
	name string
	make func(ctx context.Context, srv *server, w *wire, rate int64) (target, error)
}

// hotKey is the key that all callers ask for.
const hotKey = "customer-00000042"

// kinds has the limiters of hybridlimit, and the others for comparison. They treat
// an unknown key differently, which has no effect on the figures here.
var kinds = []kind{
	{"hybrid", newHybrid},
	{"global", func(_ context.Context, srv *server, w *wire, rate int64) (target, error) {
		rdb := srv.client(w)
		l, err := global.New(rdb, hybridlimit.PerSecond(rate), global.Config{Name: "global"})
		return limited(l, rdb, err, func() { l.Close() })
	}},
	{"redis_rate", func(_ context.Context, srv *server, w *wire, rate int64) (target, error) {
		rdb := srv.client(w)
		l, limit := redis_rate.NewLimiter(rdb), redis_rate.PerSecond(int(rate))
		return target{func(ctx context.Context, key string) (bool, error) {
			r, err := l.Allow(ctx, key, limit)
			return err == nil && r.Allowed > 0, err
		}, closing(rdb)}, nil
	}},
	{"ulule/limiter", func(_ context.Context, srv *server, w *wire, rate int64) (target, error) {
		rdb := srv.client(w)
		store, err := ululeredis.NewStoreWithOptions(rdb, ulule.StoreOptions{Prefix: "ulule"})
		if err != nil {
			rdb.Close()
			return target{}, err
		}
		l := ulule.New(store, ulule.Rate{Period: time.Second, Limit: rate})
		return target{func(ctx context.Context, key string) (bool, error) {
			r, err := l.Get(ctx, key)
			return !r.Reached, err
		}, closing(rdb)}, nil
	}},
	{"throttled", func(_ context.Context, srv *server, w *wire, rate int64) (target, error) {
		rdb := srv.client(w)
		store, err := goredisstore.NewCtx(rdb, "throttled:")
		if err != nil {
			rdb.Close()
			return target{}, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(int(rate)), MaxBurst: int(rate)})
		return target{func(ctx context.Context, key string) (bool, error) {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return !limited, err
		}, closing(rdb)}, err
	}},
	{"go-zero TokenLimiter", newZero},
}

func closing(rdb *redis.Client) func() { return func() { rdb.Close() } }

// limited returns a target for a limiter of hybridlimit.
func limited(l hybridlimit.Limiter, rdb *redis.Client, err error, end func()) (target, error) {
	if err != nil {
		rdb.Close()
		return target{}, err
	}
	return target{func(ctx context.Context, key string) (bool, error) {
		r, err := l.Allow(ctx, key)
		return r.Allowed, err
	}, func() { end(); rdb.Close() }}, nil
}

var quiet = slog.New(slog.DiscardHandler)

func newHybrid(ctx context.Context, srv *server, w *wire, rate int64) (target, error) {
	rdb := srv.client(w)
	l, err := hybrid.New(rdb, hybridlimit.PerSecond(rate), hybrid.Config{Name: "hybrid", Hub: hybrid.HubConfig{Logger: quiet}})
	if err == nil {
		if err = settled(ctx, l); err != nil {
			l.Close()
		}
	}
	return limited(l, rdb, err, func() { l.Shutdown(context.Background()) })
}

// settled waits until a limiter knows the fleet size. From then on it behaves as
// in a process that has run for a while.
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
// many keys.
func newZero(ctx context.Context, srv *server, w *wire, rate int64) (target, error) {
	store, err := zeroredis.NewRedis(zeroredis.RedisConf{Host: srv.Addr(), Type: zeroredis.NodeType, NonBlock: true}, zeroredis.WithHook(w))
	if err != nil {
		return target{}, err
	}
	others, err := srv.connections(ctx)
	if err != nil {
		return target{}, err
	}
	l := zerolimit.NewTokenLimiter(int(rate), int(rate), store, hotKey)
	// Its breaker counts a script that is not loaded yet as a failure. If many
	// callers meet that at once, the breaker opens. Then the process decides
	// without Redis, until a check of Redis every tenth of a second succeeds. Its
	// client also dials before it has the hook. Such connections are not counted,
	// so they are ended here.
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
	return target{func(ctx context.Context, _ string) (bool, error) {
		// AllowCtx returns no error. Without Redis it decides alone, which shows
		// in the number of messages.
		if !l.AllowCtx(ctx) {
			return false, errors.New("denied below the limit")
		}
		return true, nil
	}, func() {}}, nil // the client belongs to the package and stays open
}
