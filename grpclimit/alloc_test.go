//go:build !race

package grpclimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// The allocations that an interceptor adds to an admitted call, as in docs/grpc.md:
// only the key, if it is built for the call.
// Time is virtual, so that a hub makes none of the allocations while it counts.
func TestAllocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := hybridlimit.PerSecond(1_000_000_000)
		shared, err := hybrid.New(redistest.NewBubble(t).Client(nil), limit, hybrid.Config{Name: "api", Hub: hybrid.HubConfig{Logger: quiet}})
		if err != nil {
			t.Fatal(err)
		}
		defer shared.Close()
		for name, limiter := range map[string]hybridlimit.Limiter{"local": newLocal(t, "api", limit), "hybrid": shared} {
			for kind, tc := range map[string]struct {
				key  grpclimit.KeyFunc
				want float64
			}{
				"a key that is there": {fixed("k"), 0},
				"address":             {grpclimit.Peer(), 1},
				"method":              {grpclimit.Method(), 1},
				"metadata":            {grpclimit.Metadata("x-api-key", ""), 2},
			} {
				serve := served(t, limiter, tc.key)
				for range 30 { // the key gets a lease
					serve()
					time.Sleep(100 * time.Millisecond)
				}
				if got := testing.AllocsPerRun(1000, serve); got > tc.want {
					t.Errorf("%s, %s: %v allocations a call, want %v", name, kind, got, tc.want)
				}
			}
		}
	})
}
