package local

import (
	"testing"
	"testing/synctest"

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
	}{
		{"one shard", 1000},
		{"many shards", 0},
	} {
		spec.Name = tc.name
		spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			return must(tb, limit, Config{Name: spec.Policy, MaxKeys: tc.maxKeys})
		}
		spec.Wrap = synctest.Test
		limitertest.Run(t, spec)
	}
	spec.Name, spec.Wrap = "real time", nil
	limitertest.Run(t, spec)
}
