package hybrid_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// BenchmarkAllow compares the fast path with bare x/time/rate: a hot key far
// below its limit and one above it, each with and without a handle.
func BenchmarkAllow(b *testing.B) {
	b.Run("x-time-rate", func(b *testing.B) {
		l := rate.NewLimiter(1e9, 1e9)
		for b.Loop() {
			l.Allow()
		}
	})
	for _, tc := range []struct {
		name   string
		limit  hybridlimit.Limit
		handle bool
	}{
		{"allowed", hybridlimit.PerSecond(1e9), false},
		{"allowed by a handle", hybridlimit.PerSecond(1e9), true},
		{"denied", hybridlimit.PerHour(1), false},
		{"denied by a handle", hybridlimit.PerHour(1), true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			rdb := redis.NewClient(&redis.Options{Addr: standIn()})
			defer rdb.Close()
			l, err := hybrid.New(rdb, tc.limit, hybrid.Config{Name: "bench", MaxWait: time.Second})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			ctx := context.Background()
			for l.Stats().Credit == 0 && tc.limit.Rate > 1 { // until N is known
				time.Sleep(10 * time.Millisecond)
			}
			for range 10 {
				if _, err := l.Allow(ctx, "k"); err != nil {
					b.Fatal(err)
				}
			}
			handle := l.Handle("k")
			if _, err := handle.Allow(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			if tc.handle {
				for b.Loop() {
					if _, err := handle.Allow(ctx); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			for b.Loop() {
				if _, err := l.Allow(ctx, "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
