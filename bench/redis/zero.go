package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	zerolimit "github.com/zeromicro/go-zero/core/limit"
	zeroredis "github.com/zeromicro/go-zero/core/stores/redis"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

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
