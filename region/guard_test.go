//go:build !race

package region_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/region"
)

// warm returns a limiter with credit for key "k", and another region that is not there.
func warm(tb testing.TB) *region.Limiter {
	tb.Helper()
	hub, err := hybrid.NewHub(redistest.New(tb).Client(tb), hybrid.HubConfig{Logger: quiet})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { hub.Close() })
	l, err := region.New(hybridlimit.PerSecond(4_000_000_000), region.Config{
		Name: "api", Here: "eu", Hub: hub, Others: map[string]redis.UniversalClient{"us": redistest.Client(tb, "127.0.0.1:1")},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	redistest.Eventually(tb, 30*time.Second, "the limiter gives credit", func() bool {
		l.Allow(tb.Context(), "k")
		return l.Here().Stats().Credit > 0
	})
	return l
}

// TestDecisionsDoNotAllocate counts the allocations of an admission, and of a denial of a key that is noted.
func TestDecisionsDoNotAllocate(t *testing.T) {
	l := warm(t)
	if n := testing.AllocsPerRun(10_000, func() {
		if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}); n >= 1 {
		t.Errorf("an admission: %v allocations", n)
	}
	if err := l.SetLimit(hybridlimit.TokenBucket(1, 24*time.Hour, 10)); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 30*time.Second, "the key is denied", func() bool {
		res, err := l.Allow(t.Context(), "denied")
		return err == nil && res.Source == hybridlimit.SourceDenyCache && l.Stats().Keys == 1
	})
	if n := testing.AllocsPerRun(10_000, func() {
		if res, err := l.Allow(t.Context(), "denied"); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}); n >= 1 {
		t.Errorf("a denial: %v allocations", n)
	}
}

// BenchmarkAllow compares decisions on a hot key with those of the hybrid limiter alone.
func BenchmarkAllow(b *testing.B) {
	l := warm(b)
	for name, limiter := range map[string]hybridlimit.Limiter{"region": l, "hybrid": l.Here()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				limiter.Allow(b.Context(), "k")
			}
		})
	}
}
