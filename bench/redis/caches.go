package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/metrics"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
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

// The caches that hold keys without Redis.
const (
	plainCache = "golang-lru, x/time/rate"
	ownCache   = "hybrid, its memory alone"
)

// plainLRU returns a common solution: golang-lru with a limiter of golang.org/x/time/rate for each key.
func plainLRU(keys int) (cache, error) {
	c, err := lru.New[string, *rate.Limiter](keys)
	return cache{name: plainCache, callers: 1, close: func() {}, use: func(_ context.Context, key string) (bool, error) {
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
		DialerRetries: 1,
		Dialer:        func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no Redis") },
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
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return cache{}, err
		}
	}
	return cached(ownCache, 1, l, rdb), nil
}

// onRedis returns a hybrid limiter in normal use: a new key asks Redis or owes, and is evicted after it has paid. It is
// asked by enough goroutines to keep Redis busy.
func onRedis(ctx context.Context, rdb *redis.Client, name string, limit hybridlimit.Limit, keys int) (cache, error) {
	l, err := hybrid.New(rdb, limit, patient(hybrid.Config{Name: name, MaxKeys: keys}))
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
	return benchkit.Spread(c.callers, func(g int) error {
		for i := g; i < len(keys); i += c.callers {
			if _, err := c.use(ctx, keys[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// fresh returns keys that were never used before.
func fresh(from, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("customer-%011d", from+i)
	}
	return out
}

// gcCPU returns the seconds of CPU that the garbage collector and the program have used.
func gcCPU() (gc, user float64) {
	s := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
		{Name: "/cpu/classes/user:cpu-seconds"},
	}
	runtime.GC() // the metrics are updated at the end of a collection
	metrics.Read(s)
	// Without the work on idle cores, which is free.
	return s[0].Value.Float64() - s[1].Value.Float64(), s[2].Value.Float64()
}

// churnOf measures insertions of unique keys into a full cache, each of them per insertion: ns, and CPU time in ns.
// Caches are measured one after the other, not interleaved, because the garbage collector works for all caches of the
// process.
func (r *results) churnOf(ctx context.Context, srv *benchkit.Redis, c cache, each int) error {
	const part = 1 << 16
	keys := r.scale.churnKeys
	for from := 0; from < keys+keys/20; from += part { // a bit more, because shards fill unevenly
		if err := c.useAll(ctx, fresh(from, part)); err != nil {
			return err
		}
	}
	stats := func() (s hybrid.Stats) {
		if c.stats != nil {
			return c.stats()
		}
		return hybrid.Stats{Keys: keys}
	}
	held, n := float64(stats().Keys), float64(each)
	var rounds []benchkit.Figures
	gc, user := gcCPU()
	for round := range r.scale.rounds {
		unique := fresh((round+1)*1_000_000_000, each)
		before := stats()
		s, err := benchkit.Meter{Redis: srv}.Spent(ctx, func() error { return c.useAll(ctx, unique) })
		if err != nil {
			return err
		}
		after := stats()
		rounds = append(rounds, benchkit.Figures{
			"wall": float64(s.Wall) / n, "process": float64(s.Process) / n, "redis": float64(s.Redis) / n, "keys": held,
			"evicted": float64(after.Evicted-before.Evicted) / n, "refused": float64(after.Refused-before.Refused) / n,
		})
	}
	gc2, user2 := gcCPU()
	for _, f := range rounds {
		f["gc"] = (gc2 - gc) / (gc2 - gc + user2 - user) // of the CPU of this process, over all rounds
		r.Add("churn", "", c.name, f)
	}
	return nil
}

// churn measures each kind of cache.
func (r *results) churn(ctx context.Context, srv *benchkit.Redis) error {
	for _, kind := range []struct {
		make func() (cache, error)
		each int // insertions in a round
	}{
		{func() (cache, error) { return plainLRU(r.scale.churnKeys) }, r.scale.churnEach},
		{func() (cache, error) { return cutOff(ctx, r.scale.churnKeys) }, r.scale.churnEach},
		{func() (cache, error) {
			return onRedis(ctx, srv.Client(nil), "churn", hybridlimit.PerSecond(100), r.scale.churnKeys)
		}, r.scale.churnOnRedis},
	} {
		if err := srv.Admin.FlushAll(ctx).Err(); err != nil {
			return err
		}
		c, err := kind.make()
		if err != nil {
			return err
		}
		err = r.churnOf(ctx, srv, c, kind.each)
		c.close()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		runtime.GC()
	}
	return nil
}

// In a scan one call of ten is for a key in use. The other nine are for keys that are used only once.
const scanPer = 9

// scanned asks for keys in use, by Zipf's law, during a scan, and returns the share of these calls whose key had been
// evicted. A hybrid limiter reports the number of evicted keys, not their names. When it is full, each key that comes
// in evicts one, and a key of the scan comes in once. So the evictions beyond the keys of the scan are those of keys in
// use.
func scanned(ctx context.Context, c cache, inUse, calls int, seed uint64) (missed float64, err error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	z := rand.NewZipf(rng, zipfSkew, 1, uint64(inUse-1))
	names := make([]string, inUse)
	for i := range names {
		names[i] = "in-use-" + strconv.Itoa(i)
	}
	var before, scans, hits uint64
	if c.stats != nil {
		s := c.stats()
		before = s.Evicted + s.Refused
	}
	for i := range calls {
		hit, err := c.use(ctx, names[z.Uint64()])
		if err != nil {
			return 0, err
		}
		if hit {
			hits++
		}
		for j := range scanPer {
			if _, err := c.use(ctx, fmt.Sprintf("scan-%d-%d-%d", seed, i, j)); err != nil {
				return 0, err
			}
			scans++
		}
	}
	if c.stats == nil {
		return 1 - float64(hits)/float64(calls), nil
	}
	s := c.stats()
	return float64(int64(s.Evicted+s.Refused-before-scans)) / float64(calls), nil
}

// survival compares the keys in use that a hybrid limiter evicts with those that a golang-lru of the same size evicts,
// in interleaved rounds of the same calls.
func (r *results) survival(ctx context.Context, _ *benchkit.Redis) error {
	keys, inUse, calls := r.scale.survivalKeys, r.scale.inUse(), r.scale.survivalCalls
	plain, err := plainLRU(keys)
	if err != nil {
		return err
	}
	own, err := cutOff(ctx, keys)
	if err != nil {
		return err
	}
	defer own.close()
	caches := []cache{plain, own}
	for _, c := range caches {
		// Fills the cache with keys of a scan. Round -1 warms it up.
		if err := c.useAll(ctx, fresh(0, keys+keys/10)); err != nil {
			return err
		}
	}
	return benchkit.Turns(-1, r.scale.rounds, len(caches), func(round, i int) error {
		missed, err := scanned(ctx, caches[i], inUse, calls, uint64(round+1))
		if round >= 0 && err == nil {
			r.Add("survival", "", caches[i].name, benchkit.Figures{"missed": missed})
		}
		return err
	})
}

// inUse is the number of keys in use during a scan.
func (s scale) inUse() int { return s.survivalKeys / 5 }
