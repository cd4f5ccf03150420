package global_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/limitertest"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func closeGlobal(l hybridlimit.Limiter) error { return l.(*global.Limiter).Close() }

func TestConformance(t *testing.T) {
	limitertest.Run(t, limitertest.Spec{
		New: func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			l, err := global.New(redistest.NewBubble(tb).Client(nil), limit, global.Config{Name: "api"})
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { l.Close() })
			return l
		},
		Close: closeGlobal, Wrap: synctest.Test, Policy: "api", Exact: true,
	})
}

func TestConformanceOnRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	var prefixes atomic.Int64
	limitertest.Run(t, limitertest.Spec{
		New: func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			l, err := global.New(srv.Client(tb), limit, global.Config{
				Name: "api", Prefix: fmt.Sprint("p", prefixes.Add(1)), Timeout: 10 * time.Second,
			})
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { l.Close() })
			return l
		},
		Close: closeGlobal, Policy: "api", Exact: true,
	})
}
