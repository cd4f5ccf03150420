package hybrid_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// BenchmarkRateLease is a call of a limiter of leased rates, by one goroutine and by several for one key.
func BenchmarkRateLease(b *testing.B) {
	for name, limit := range map[string]hybridlimit.Limit{"allowed": hybridlimit.PerSecond(1e9), "denied": hybridlimit.PerSecond(1)} {
		rdb := redis.NewClient(&redis.Options{Addr: standIn()})
		defer rdb.Close()
		h := newHub(b, rdb, hybrid.HubConfig{FleetSize: 1})
		l, err := h.RateLeases(limit, hybrid.RateLeaseConfig{Name: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		call := func() {
			if _, err := l.Allow(context.Background(), "k"); err != nil {
				b.Error(err)
			}
		}
		call()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
		b.Run(name+" in parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call()
				}
			})
		})
	}
}
