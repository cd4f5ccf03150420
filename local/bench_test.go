package local

import (
	"context"
	"fmt"
	"math/rand"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
)

// The limits of the benchmarks: wide admits nearly everything, narrow denies nearly
// everything.
var (
	wide   = hybridlimit.TokenBucket(1_000_000_000, time.Second, 1_000_000_000)
	narrow = hybridlimit.TokenBucket(1, time.Minute, 1)
)

// zipf returns a trace of n keys out of 100 000, skewed like the users of a service.
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
// key, and with the simplest alternative, a map of them under one lock, which has
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
				l := newRate(tc.limit)
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
					l = newRate(tc.limit)
					limiters[key] = l
				}
				mu.Unlock()
				l.Allow()
			})
		})
	}
}

// BenchmarkNewKeys measures the worst case: every call has a new key and pushes out an
// old one. It compares numbers of shards, and a golang-lru with rate.Limiter.
func BenchmarkNewKeys(b *testing.B) {
	const room = 100_000
	keys := make([]string, 10*room)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%015d", i)
	}
	ctx := context.Background()
	measure := func(name string, call func(key string)) {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				call(keys[i%len(keys)])
			}
		})
	}
	for _, shards := range []int{1, 8, 64} {
		l := newLimiter(wide, Config{MaxKeys: room}.withDefaults(wide), shards, time.Now())
		measure(fmt.Sprint("shards=", shards), func(key string) { _, _ = l.Allow(ctx, key) })
	}
	plain, err := lru.New[string, *rate.Limiter](room)
	if err != nil {
		b.Fatal(err)
	}
	measure("golang-lru", func(key string) {
		l, ok := plain.Get(key)
		if !ok {
			l = newRate(wide)
			plain.Add(key, l)
		}
		l.Allow()
	})
}

// BenchmarkAlgorithms measures one key in one goroutine: all calls denied, and all calls
// admitted. In the first case the log holds 1000 entries.
func BenchmarkAlgorithms(b *testing.B) {
	ctx := context.Background()
	for _, limit := range everyAlgorithm(1000, time.Hour) {
		b.Run(limit.Algorithm.String()+"/deny", func(b *testing.B) {
			l := must(b, limit, Config{})
			for range 1000 {
				_, _ = l.Allow(ctx, "k")
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(ctx, "k")
			}
		})
	}
	for _, limit := range everyAlgorithm(1000, time.Microsecond) {
		b.Run(limit.Algorithm.String()+"/admit", func(b *testing.B) {
			l := must(b, limit, Config{})
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(ctx, "k")
			}
		})
	}
}

// BenchmarkVerbs measures one key that always has units.
func BenchmarkVerbs(b *testing.B) {
	ctx := context.Background()
	l := must(b, wide, Config{})
	other := hybridlimit.TokenBucket(2_000_000_000, time.Second, 1_000_000_000)
	own := must(b, wide, Config{LimitFor: func(string) hybridlimit.Limit { return other }})
	for _, v := range []struct {
		name string
		call func()
	}{
		{"Allow", func() { _, _ = l.Allow(ctx, "k") }},
		{"Allow with LimitFor", func() { _, _ = own.Allow(ctx, "k") }},
		{"AllowAtMost", func() { _, _ = l.AllowAtMost(ctx, "k", 1) }},
		{"AllowLimit", func() { _, _ = l.AllowLimit(ctx, "k2", 1, other) }},
		{"Peek", func() { _, _ = l.Peek(ctx, "k") }},
		{"Charge and Refund", func() { _, _ = l.Charge(ctx, "k", 1); _, _ = l.Refund(ctx, "k", 1) }},
		{"Reserve and Cancel", func() {
			if r, err := l.Reserve(ctx, "k", 1); err == nil {
				_ = r.Cancel(ctx)
			}
		}},
		{"Wait", func() { _, _ = l.Wait(ctx, "k", 1) }},
	} {
		b.Run(v.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.call()
			}
		})
	}
}

// BenchmarkSetLimit measures SetLimit with 100 000 keys held.
func BenchmarkSetLimit(b *testing.B) {
	l := must(b, narrow, Config{MaxKeys: 200_000})
	for i := range 100_000 {
		_, _ = l.Allow(context.Background(), strconv.Itoa(i))
	}
	for i := int64(1); b.Loop(); i++ {
		if err := l.SetLimit(hybridlimit.TokenBucket(1+i%2, time.Minute, 1)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInvalidateAll measures InvalidateAll with 100 000 keys held.
func BenchmarkInvalidateAll(b *testing.B) {
	l := must(b, narrow, Config{MaxKeys: 200_000})
	for i := range 100_000 {
		_, _ = l.Allow(context.Background(), strconv.Itoa(i))
	}
	for b.Loop() {
		if err := l.InvalidateAll(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory reports the bytes per key, for keys of 32 bytes that were used once.
func BenchmarkMemory(b *testing.B) {
	const keys = 100_000
	for _, limit := range everyAlgorithm(1000, time.Hour) {
		b.Run(limit.Algorithm.String(), func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				l := must(b, limit, Config{MaxKeys: 2 * keys})
				for i := range keys {
					_, _ = l.Allow(context.Background(), fmt.Sprintf("%032d", i))
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
				_ = l.Close()
			}
		})
	}
}
