//go:build !race

package hybrid_test

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// warmCalls returns a limiter of calls in flight and a limiter of a rate of one hub. The process has a permit and units in hand.
func warmCalls(tb testing.TB) (*hybrid.ConcurrencyLimiter, *hybrid.Limiter) {
	tb.Helper()
	h := newHub(tb, redistest.New(tb).Client(tb), hybrid.HubConfig{Prefix: "t"})
	calls, err := h.Concurrency(hybridlimit.Concurrent(1000), hybrid.ConcurrencyConfig{Name: "calls"})
	if err != nil {
		tb.Fatal(err)
	}
	rate := add(tb, h, hybridlimit.TokenBucket(1e9, time.Second, 1e9), hybrid.Config{Name: "rate"})
	redistest.Eventually(tb, 30*time.Second, "Redis has learnt the tag", func() bool {
		p, res, err := calls.Acquire(context.Background(), "k")
		p.Release()
		return err == nil && res.Allowed && res.Source == hybridlimit.SourceLease
	})
	return calls, rate
}

// TestAcquireDoesNotAllocate checks that Acquire and Release of a permit in hand allocate nothing.
func TestAcquireDoesNotAllocate(t *testing.T) {
	limiter, _ := warmCalls(t)
	if n := testing.AllocsPerRun(10_000, func() {
		p, res, err := limiter.Acquire(context.Background(), "k")
		p.Release()
		if err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAcquire(b *testing.B) {
	limiter, rate := warmCalls(b)
	ctx := context.Background()
	b.Run("Allow", func(b *testing.B) {
		for b.Loop() {
			rate.Allow(ctx, "k")
		}
	})
	b.Run("Acquire and Release", func(b *testing.B) {
		for b.Loop() {
			p, _, _ := limiter.Acquire(ctx, "k")
			p.Release()
		}
	})
}
