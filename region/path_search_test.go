//go:build search && !race

package region_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestDecisionCostsLittleMore checks that an admission takes at most 10 ns longer than one of the hybrid limiter alone. The
// best of many short rounds that take turns are compared.
func TestDecisionCostsLittleMore(t *testing.T) {
	l := warm(t)
	const calls, rounds = 50_000, 200
	best := map[string]time.Duration{}
	timed := func(name string, limiter hybridlimit.Limiter) {
		ctx, began := t.Context(), time.Now()
		for range calls {
			if res, err := limiter.Allow(ctx, "k"); err != nil || !res.Allowed {
				t.Fatalf("%s: %+v, %v", name, res, err)
			}
		}
		if took := time.Since(began); best[name] == 0 || took < best[name] {
			best[name] = took
		}
	}
	more := func() time.Duration { return (best["region"] - best["hybrid"]) / calls }
	for i := range rounds {
		timed("hybrid", l.Here())
		timed("region", l)
		if i >= 5 && more() <= 10 {
			break
		}
	}
	if t.Logf("hybrid %v, region %v for %d calls: %d ns more", best["hybrid"], best["region"], calls, more()); more() > 10 {
		t.Errorf("%d ns more", more())
	}
}
