package local

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/limitertest"
)

func TestConformance(t *testing.T) {
	spec := limitertest.Spec{
		Close:  func(l hybridlimit.Limiter) error { return l.(*Limiter).Close() },
		Policy: "policy.1",
		Exact:  true,
	}
	for _, tc := range []struct {
		name    string
		maxKeys int
		bucket  func(int64, time.Duration, int64) hybridlimit.Limit
	}{
		{"one shard", 1000, hybridlimit.TokenBucket},
		{"token bucket", 0, hybridlimit.TokenBucket},
		{"leaky bucket", 0, hybridlimit.LeakyBucket},
		{"leaky queue", 0, hybridlimit.LeakyQueue},
		{"fixed window", 0, limitertest.Window(hybridlimit.FixedWindow)},
		{"sliding window", 0, limitertest.Window(hybridlimit.SlidingWindow)},
		{"sliding log", 0, limitertest.Window(hybridlimit.SlidingLog)},
	} {
		spec.Name, spec.Bucket = tc.name, tc.bucket
		spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			return must(tb, limit, Config{Name: spec.Policy, MaxKeys: tc.maxKeys})
		}
		spec.Wrap = synctest.Test
		limitertest.Run(t, spec)
	}
	spec.Name, spec.Wrap, spec.Bucket = "real time", nil, nil
	limitertest.Run(t, spec)
}
