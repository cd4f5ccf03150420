//go:build search && !race

package local

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestCommonPathOfAcquire checks that Acquire and Release take at most 2.5 times as
// long as a hot Allow. The test compares the medians of rounds that take turns, and
// repeats them on a busy machine. The race detector slows the two unevenly.
func TestCommonPathOfAcquire(t *testing.T) {
	const calls, rounds, repeats, most = 2000, 31, 10, 2.5
	ctx := context.Background()
	rate := must(t, wide, Config{})
	idle := permits(t, hybridlimit.Concurrent(1000), ConcurrencyConfig{})
	busy := permits(t, hybridlimit.Concurrent(1000), ConcurrencyConfig{MaxWait: time.Second})
	defer take(t, busy, "k", 1).Release()
	acquire := func(l *ConcurrencyLimiter) bool {
		p, res, err := l.Acquire(ctx, "k")
		p.Release()
		return err == nil && res.Allowed
	}
	for repeat := range repeats {
		took := map[string][]time.Duration{}
		round := func(name string, call func() bool) {
			start := time.Now()
			for range calls {
				if !call() {
					t.Fatalf("%s is denied", name)
				}
			}
			took[name] = append(took[name], time.Since(start))
		}
		for range rounds {
			round("Allow", func() bool { res, err := rate.Allow(ctx, "k"); return err == nil && res.Allowed })
			round("an idle key", func() bool { return acquire(idle) })
			round("a busy key", func() bool { return acquire(busy) })
		}
		median := func(name string) float64 {
			slices.Sort(took[name])
			return float64(took[name][rounds/2])
		}
		once, again := median("an idle key")/median("Allow"), median("a busy key")/median("Allow")
		t.Logf("Acquire and Release take %.2f times as long as Allow for an idle key, and %.2f times for a busy one", once, again)
		if once <= most && again <= most {
			return
		}
		if repeat == repeats-1 {
			t.Errorf("more than %v times", most)
		}
	}
}
