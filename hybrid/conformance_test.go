package hybrid_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/limitertest"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

var modes = []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact}

// conformance is what a single process promises in each mode. Only ModeExact
// denies no unit that the bucket holds: the others may hold some on a lease
// that expires, or wait out a proof of a denial.
func conformance(mode hybrid.Mode) limitertest.Spec {
	return limitertest.Spec{
		Name:   mode.String(),
		Close:  func(l hybridlimit.Limiter) error { return l.(*hybrid.Limiter).Close() },
		Policy: "api", Exact: mode == hybrid.ModeExact, RetryIsLowerBound: mode != hybrid.ModeExact,
	}
}

func TestConformance(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			conformanceInVirtualTime(t, mode)
		})
	}
}

func conformanceInVirtualTime(t *testing.T, mode hybrid.Mode) {
	spec := conformance(mode)
	spec.Name, spec.Wrap = "cold", synctest.Test
	spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
		return newLimiter(tb, redistest.NewBubble(tb).Client(nil), limit, patient(hybrid.Config{Mode: mode}))
	}
	limitertest.Run(t, spec)

	// The same once the limiter gives credit, where the mode does.
	spec.Name = "warm"
	cold := spec.New
	spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
		l := cold(tb, limit)
		time.Sleep(3 * time.Second)
		return l
	}
	if mode == hybrid.ModeAuto || mode == hybrid.ModeDeferred {
		limitertest.Run(t, spec)
	}
}

func TestConformanceOnRedis(t *testing.T) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) { conformanceOnRedis(t, functions) })
	}
}

func conformanceOnRedis(t *testing.T, functions bool) {
	t.Parallel()
	srv := redistest.New(t)
	if functions {
		redistest.NeedFunctions(t, srv.Client(t))
	}
	var prefixes atomic.Int64
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeExact} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			spec := conformance(mode)
			// The clocks of Redis and of this process are read at different
			// moments: to the µs only virtual time is exact.
			spec.Exact, spec.RetryIsLowerBound = false, true
			spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
				cfg := patient(hybrid.Config{Mode: mode})
				cfg.Hub.Prefix, cfg.Hub.Functions = fmt.Sprint("p", prefixes.Add(1)), functions
				return newLimiter(tb, srv.Client(tb), limit, cfg)
			}
			limitertest.Run(t, spec)
		})
	}
}
