package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// cache is a bounded set of keys that evicts old ones.
type cache struct {
	name    string
	callers int
	// use asks for a key, which adds it, and reports whether the cache knows that the key was there.
	use func(ctx context.Context, key string) (hit bool, err error)
	// stats returns the figures of a hybrid limiter. Nil for golang-lru.
	stats func() hybrid.Stats
	close func()
}

// plainLRU returns a common solution: golang-lru with a limiter of golang.org/x/time/rate for each key.
func plainLRU(keys int) (cache, error) {
	c, err := lru.New[string, *rate.Limiter](keys)
	return cache{name: "golang-lru, x/time/rate", callers: 1, close: func() {}, use: func(_ context.Context, key string) (bool, error) {
		l, hit := c.Get(key)
		if !hit {
			l = rate.NewLimiter(100, 100)
			c.Add(key, l)
		}
		l.Allow()
		return hit, nil
	}}, err
}

// cutOff returns a hybrid limiter without Redis that denies everything, so that
// nothing is owed. It shows the cost of the memory alone.
func cutOff(ctx context.Context, keys int) (cache, error) {
	rdb := redis.NewClient(&redis.Options{
		DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no Redis") },
	})
	l, err := hybrid.New(rdb, hybridlimit.PerSecond(100), hybrid.Config{
		Name: "churn", MaxKeys: keys, MaxWait: -1, Fallback: hybrid.FallbackDenyAll,
		Hub: hybrid.HubConfig{Logger: quiet, Breaker: breaker.Config{Failures: 1}},
	})
	if err != nil {
		rdb.Close()
		return cache{}, err
	}
	for l.Stats().Breaker != breaker.Open {
		select {
		case <-ctx.Done():
			return cache{}, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return cached("hybrid, its memory alone", 1, l, rdb), nil
}

// onRedis returns a hybrid limiter in normal use: a new key asks Redis or owes, and is evicted after it has paid.
func onRedis(ctx context.Context, srv *server, keys int) (cache, error) {
	rdb := srv.client(nil)
	l, err := hybrid.New(rdb, hybridlimit.PerSecond(100), patient(hybrid.Config{Name: "churn", MaxKeys: keys}))
	if err != nil {
		rdb.Close()
		return cache{}, err
	}
	return cached("hybrid on Redis", 512, l, rdb), settled(ctx, l)
}

func cached(name string, callers int, l *hybrid.Limiter, rdb *redis.Client) cache {
	return cache{name: name, callers: callers, stats: l.Stats, use: func(ctx context.Context, key string) (bool, error) {
		_, err := l.Allow(ctx, key)
		return false, err
	}, close: func() { l.Close(); rdb.Close() }}
}

// useAll asks once for each key.
func (c *cache) useAll(ctx context.Context, keys []string) error {
	errs := make([]error, c.callers)
	var wg sync.WaitGroup
	for g := range c.callers {
		wg.Go(func() {
			for i := g; i < len(keys) && errs[g] == nil; i += c.callers {
				_, errs[g] = c.use(ctx, keys[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fresh returns keys that were never used before.
func fresh(from, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("customer-%011d", from+i)
	}
	return out
}

// insertion is the cost of one insertion into a full cache.
type insertion struct {
	wall, process, redis float64 // ns
	evicted, refused     float64
}

type churnRow struct {
	name    string
	keys    int
	cost    series[insertion]
	gcShare float64 // of the CPU of this process, over all rounds
}

// gcCPU returns the seconds of CPU that the garbage collector and the program have used.
func gcCPU() (gc, user float64) {
	s := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"}, {Name: "/cpu/classes/user:cpu-seconds"},
	}
	runtime.GC() // the metrics are updated at the end of a collection
	metrics.Read(s)
	return s[0].Value.Float64() - s[1].Value.Float64(), s[2].Value.Float64() // without the work on idle cores, which is free
}

// churn measures insertions of unique keys into a full cache. Caches are measured one after the other, not interleaved,
// because the garbage collector works for all caches of the process.
func churn(ctx context.Context, srv *server, c cache, rounds, keys, each int) (row churnRow, err error) {
	row = churnRow{name: c.name}
	const part = 1 << 16
	for from := 0; from < keys+keys/20; from += part { // a bit more, because shards fill unevenly
		if err = c.useAll(ctx, fresh(from, part)); err != nil {
			return row, err
		}
	}
	stats := func() (s hybrid.Stats) {
		if c.stats != nil {
			s = c.stats()
		}
		return s
	}
	row.keys = keys
	if c.stats != nil {
		row.keys = c.stats().Keys
	}
	gc, user := gcCPU()
	for round := range rounds {
		unique := fresh((round+1)*1_000_000_000, each)
		before := stats()
		redis, err := srv.cpu(ctx)
		if err != nil {
			return row, err
		}
		own, err := ownCPU()
		if err != nil {
			return row, err
		}
		began := time.Now()
		if err := c.useAll(ctx, unique); err != nil {
			return row, err
		}
		took := time.Since(began)
		own2, err := ownCPU()
		if err != nil {
			return row, err
		}
		redis2, err := srv.cpu(ctx)
		if err != nil {
			return row, err
		}
		after, n := stats(), float64(each)
		row.cost = append(row.cost, insertion{
			wall: float64(took) / n, process: float64(own2-own) / n, redis: float64(redis2-redis) / n,
			evicted: float64(after.Evicted-before.Evicted) / n, refused: float64(after.Refused-before.Refused) / n,
		})
	}
	gc2, user2 := gcCPU()
	row.gcShare = (gc2 - gc) / (gc2 - gc + user2 - user)
	return row, nil
}

// churns runs churn for each kind of cache. redisEach is the number of insertions in a round with Redis.
func churns(ctx context.Context, srv *server, rounds, keys, each, redisEach int) (rows []churnRow, err error) {
	for _, make := range []func() (cache, error){
		func() (cache, error) { return plainLRU(keys) },
		func() (cache, error) { return cutOff(ctx, keys) },
		func() (cache, error) { return onRedis(ctx, srv, keys) },
	} {
		if err := srv.wipe(ctx); err != nil {
			return rows, err
		}
		c, err := make()
		if err != nil {
			return rows, err
		}
		n := each
		if c.callers > 1 {
			n = redisEach
		}
		row, err := churn(ctx, srv, c, rounds, keys, n)
		c.close()
		if err != nil {
			return rows, fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, row)
		runtime.GC()
	}
	return rows, nil
}
