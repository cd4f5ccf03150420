//go:build !race

package grpclimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// The allocations that an interceptor adds to an admitted call, as in docs/grpc.md:
// only the key, if it is built for the call.
// Each limiter has one place: in several, calls are marked. Time is virtual, so that a
// hub makes none of the allocations while it counts.
func TestAllocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := hybridlimit.PerSecond(1_000_000_000)
		hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		for name, made := range map[string]func(kind string) hybridlimit.Limiter{
			"local": func(kind string) hybridlimit.Limiter { return newLocal(t, kind, limit) },
			"hybrid": func(kind string) hybridlimit.Limiter {
				l, err := hub.Limiter(limit, hybrid.Config{Name: kind})
				if err != nil {
					t.Fatal(err)
				}
				return l
			},
		} {
			for kind, tc := range map[string]struct {
				key  grpclimit.KeyFunc
				want float64
			}{
				"fixed":    {fixed("k"), 0},
				"address":  {grpclimit.Peer(), 1},
				"method":   {grpclimit.Method(), 1},
				"metadata": {grpclimit.Metadata("x-api-key", ""), 2},
			} {
				serve := served(t, made(kind), tc.key)
				for range 30 { // the key gets a lease for as many calls as are counted
					for range 1000 {
						serve()
					}
					time.Sleep(100 * time.Millisecond)
				}
				if got := testing.AllocsPerRun(1000, serve); got > tc.want {
					t.Errorf("%s, %s: %v allocations a call, want %v", name, kind, got, tc.want)
				}
			}
		}
	})
}
