package global_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/conformance"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

func closeGlobal(l hybridlimit.Limiter) error { return l.(*global.Limiter).Close() }

func TestConformance(t *testing.T) {
	for _, of := range conformance.Algorithms() {
		conformance.Run(t, conformance.Spec{
			Name: of.Name, Bucket: of.Bucket,
			New: func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
				return newLimiter(tb, redistest.NewBubble(tb).Client(nil), limit, global.Config{})
			},
			Close: closeGlobal, Wrap: synctest.Test, Policy: "api", Exact: true, Light: of.Name != "token bucket",
		})
	}
}

// TestConformanceOnRedis runs the suite on a real Redis, in real time, for one algorithm, or
// for all with testenv.Full. TestConformanceWithFunctions, TestCluster and TestRing run it for
// one other algorithm each way. So each algorithm and each way has a run.
func TestConformanceOnRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	var prefixes atomic.Int64
	for _, of := range conformance.Algorithms() {
		if of.Name != "token bucket" && !testenv.Full() {
			continue
		}
		t.Run(of.Name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, conformance.Spec{
				Bucket: of.Bucket,
				New: func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
					return newLimiter(tb, srv.Client(tb), limit, global.Config{
						Prefix: fmt.Sprint("p", prefixes.Add(1)), Timeout: 30 * time.Second,
					})
				},
				Close: closeGlobal, Policy: "api", Exact: true, Light: of.Name != "token bucket",
			})
		})
	}
}
