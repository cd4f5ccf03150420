package local

import (
	"context"
	"math/rand"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
)

// The limits of the benchmarks: one that admits nearly everything, and one that
// denies nearly everything.
var (
	wide   = hybridlimit.TokenBucket(1_000_000_000, time.Second, 1_000_000_000)
	narrow = hybridlimit.TokenBucket(1, time.Minute, 1)
)

// zipf is a trace of n keys out of 100 000, skewed like the users of a service.
func zipf(n int) []string {
	r := rand.New(rand.NewSource(1))
	z := rand.NewZipf(r, 1.1, 1, 99_999)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "user:" + strconv.FormatUint(z.Uint64(), 10)
	}
	return keys
}

// parallel runs call from GOMAXPROCS goroutines, each at its own place in keys.
func parallel(b *testing.B, keys []string, call func(key string)) {
	b.ReportAllocs()
	var mu sync.Mutex
	offset := 0
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		i := offset
		offset += len(keys) / 7
		mu.Unlock()
		for ; pb.Next(); i++ {
			call(keys[i%len(keys)])
		}
	})
}

// BenchmarkAllow compares this package with a bare rate.Limiter, which has one
// key, and with the map of them under one lock that one writes first, which has
// no bound and reports no Remaining or RetryAfter.
func BenchmarkAllow(b *testing.B) {
	ctx := context.Background()
	hot := []string{"user:1"}
	many := zipf(1 << 16)
	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit
		keys  []string
	}{
		{"hot/admit", wide, hot},
		{"hot/deny", narrow, hot},
		{"zipf/admit", wide, many},
		{"zipf/deny", narrow, many},
	} {
		b.Run(tc.name+"/local", func(b *testing.B) {
			l := must(b, tc.limit, Config{})
			parallel(b, tc.keys, func(key string) { _, _ = l.Allow(ctx, key) })
		})
		if len(tc.keys) == 1 {
			b.Run(tc.name+"/bare", func(b *testing.B) {
				l := newArith(tc.limit).newLimiter()
				parallel(b, tc.keys, func(string) { l.Allow() })
			})
		}
		b.Run(tc.name+"/map", func(b *testing.B) {
			var mu sync.Mutex
			limiters := map[string]*rate.Limiter{}
			parallel(b, tc.keys, func(key string) {
				mu.Lock()
				l, ok := limiters[key]
				if !ok {
					l = newArith(tc.limit).newLimiter()
					limiters[key] = l
				}
				mu.Unlock()
				l.Allow()
			})
		})
		b.Run(tc.name+"/unlocked", func(b *testing.B) {
			l := must(b, tc.limit, Config{})
			parallel(b, tc.keys, func(key string) { l.allowUnlocked(time.Now(), key, 1) })
		})
	}
}

// BenchmarkNewKeys is the worst case: every call brings a new key and pushes
// out an old one.
func BenchmarkNewKeys(b *testing.B) {
	l := must(b, narrow, Config{MaxKeys: 4096})
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(i)
	}
	ctx := context.Background()
	parallel(b, keys, func(key string) { _, _ = l.Allow(ctx, key) })
}

// allowUnlocked is the rejected alternative: the lock is held for the lookup
// only, and the bucket's own lock serves for the rest. It loses what is taken
// from a bucket that is evicted meanwhile, and its RetryAfter is a guess.
func (l *Limiter) allowUnlocked(now time.Time, key string, n int64) hybridlimit.Result {
	s := l.shardOf(key)
	s.mu.Lock()
	at, behind := s.tick(now.Sub(l.start))
	e := s.find(key, nil, nil)
	s.mu.Unlock()
	if _, ok := e.state.take(e.plan, at, n); ok {
		res := l.result(e.look(at, 0), e.plan, behind)
		res.Allowed, res.Granted = true, n
		return res
	}
	return l.result(e.look(at, n), e.plan, behind)
}
