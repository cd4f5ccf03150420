package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// BenchmarkChurn measures a call for a key that is not in memory, while memory is
// full of keys that owe nothing: the call makes an entry and evicts another one.
// Redis is away and the fallback denies, so that only the work in memory is
// measured. The other case is a common composition of the same size.
func BenchmarkChurn(b *testing.B) {
	const keys = 1_000_000
	ctx := context.Background()
	churn := func(b *testing.B, call func(key string)) {
		for i := range keys + keys/10 { // a bit more, because shards fill unevenly
			call(fmt.Sprintf("before-%011d", i))
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			call(fmt.Sprintf("customer-%011d", i))
		}
	}
	b.Run("golang-lru of x-time-rate", func(b *testing.B) {
		c, err := lru.New[string, *rate.Limiter](keys)
		if err != nil {
			b.Fatal(err)
		}
		churn(b, func(key string) {
			l, ok := c.Get(key)
			if !ok {
				l = rate.NewLimiter(100, 100)
				c.Add(key, l)
			}
			l.Allow()
		})
	})
	b.Run("hybrid", func(b *testing.B) {
		rdb := redis.NewClient(&redis.Options{
			DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no Redis") },
		})
		defer rdb.Close()
		open, once := make(chan struct{}), sync.Once{}
		l, err := hybrid.New(rdb, hybridlimit.PerSecond(100), hybrid.Config{
			Name: "churn", MaxKeys: keys, MaxWait: -1, Fallback: hybrid.FallbackDenyAll,
			Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler), Breaker: breaker.Config{Failures: 1, OnChange: func(c breaker.Change) {
				if c.To == breaker.Open {
					once.Do(func() { close(open) })
				}
			}}},
		})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		<-open
		churn(b, func(key string) {
			if _, err := l.Allow(ctx, key); err != nil {
				b.Fatal(err)
			}
		})
	})
}
