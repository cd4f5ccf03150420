//go:build search && !race

package hybrid_test

import (
	"context"
	"slices"
	"testing"
	"time"
)

// TestCommonPathOfAcquire checks that Acquire and Release take at most 2.5 times as long as a hot Allow. The test compares
// the medians of rounds that take turns, and repeats them on a busy machine. The race detector slows the two unevenly.
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
}
