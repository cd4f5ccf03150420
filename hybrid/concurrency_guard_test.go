//go:build !race

package hybrid_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
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

// TestCommonPathOfAcquire checks that Acquire and Release take at most 2.5 times as long as a hot Allow, and allocate nothing. The test
// compares the medians of rounds that take turns, and repeats them on a busy machine. The race detector slows the two unevenly.
func TestCommonPathOfAcquire(t *testing.T) {
	const calls, rounds, repeats, most = 2000, 31, 10, 2.5
	ctx := context.Background()
	limiter, rate := warmCalls(t)
	acquire := func() bool {
		p, res, err := limiter.Acquire(ctx, "k")
		p.Release()
		return err == nil && res.Allowed
	}
	allow := func() bool {
		res, err := rate.Allow(ctx, "k")
		return err == nil && res.Allowed
	}
	for repeat := range repeats {
		var took [2][]time.Duration
		for range rounds {
			for i, call := range []func() bool{allow, acquire} {
				start := time.Now()
				for range calls {
					if !call() {
						t.Fatal("a call is denied")
					}
				}
				took[i] = append(took[i], time.Since(start))
			}
		}
		slices.Sort(took[0])
		slices.Sort(took[1])
		ratio := float64(took[1][rounds/2]) / float64(took[0][rounds/2])
		t.Logf("Acquire and Release take %.2f times as long as Allow", ratio)
		if ratio <= most {
			break
		}
		if repeat == repeats-1 {
			t.Errorf("more than %v times", most)
		}
	}
	if n := testing.AllocsPerRun(10_000, func() { acquire() }); n >= 1 {
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
