package region_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/region"
)

// TestRegionsHaveShortFreeLeases reads the ops of a contended key: free leases live for a second, although the burst
// would allow four. Units that come from another region find room beside them, and the reserve is for one second.
func TestRegionsHaveShortFreeLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := redistest.NewBubble(t), redistest.NewBubble(t)
		var short, asks atomic.Int64
		a.SetPreHook(func(_ *server.Peer, _ string, args ...string) bool {
			for _, arg := range args {
				if strings.Contains(arg, " u2") { // an op of a process that waited for its poll
					asks.Add(1)
					if strings.Contains(arg, " l1") {
						short.Add(1)
					}
				}
			}
			return false
		})
		hub, err := hybrid.NewHub(a.Client(many), hybrid.HubConfig{Logger: quiet, FleetSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		l, err := region.New(hybridlimit.TokenBucket(100, time.Second, 6000), region.Config{
			Name: "api", Here: "a", Hub: hub, Others: map[string]redis.UniversalClient{"b": b.Client(many)},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.Sleep(2 * time.Second)
		for range 10_000 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := asks.Load(); n == 0 || short.Load() != n {
			t.Errorf("%d of %d ops want free leases of a second", short.Load(), n)
		}
	})
}
