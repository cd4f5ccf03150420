package local

import (
	"context"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// permits makes a limiter of calls in flight that is closed when the test ends.
func permits(tb testing.TB, limit hybridlimit.Limit, cfg ConcurrencyConfig) *ConcurrencyLimiter {
	tb.Helper()
	l, err := NewConcurrency(limit, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// BenchmarkAcquire acquires and releases a permit. Between hot and held, only the
// memory of the key differs.
func BenchmarkAcquire(b *testing.B) {
	ctx := context.Background()
	b.Run("allow", func(b *testing.B) {
		l := must(b, wide, Config{})
		parallel(b, []string{"user:1"}, func(key string) { _, _ = l.Allow(ctx, key) })
	})
	for name, keys := range map[string][]string{"hot": {"user:1"}, "zipf": zipf(1 << 16)} {
		b.Run(name, func(b *testing.B) {
			l := permits(b, hybridlimit.Concurrent(1000), ConcurrencyConfig{})
			parallel(b, keys, func(key string) {
				p, _, _ := l.Acquire(ctx, key)
				p.Release()
			})
		})
	}
	b.Run("held", func(b *testing.B) {
		l := permits(b, hybridlimit.Concurrent(1000), ConcurrencyConfig{})
		held, _, _ := l.Acquire(ctx, "user:1")
		defer held.Release()
		parallel(b, []string{"user:1"}, func(key string) {
			p, _, _ := l.Acquire(ctx, key)
			p.Release()
		})
	})
}
