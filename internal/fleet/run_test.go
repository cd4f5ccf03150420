package fleet

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func TestSmoke(t *testing.T) {
	for _, k := range []Kind{Auto, Strict, Deferred, RedisExact, CentralExact, CountAndPush} {
		t.Run(string(k), func(t *testing.T) {
			began := time.Now()
			r := Run(t, Scenario{
				Seed: 1, Kind: k, Processes: 5, Limit: hybridlimit.PerSecond(1000), Span: 5 * time.Second, Steady: 2 * time.Second,
				Load: Load{Factor: 1.5}, Latency: 500 * time.Microsecond,
			})
			r.Timeline = nil
			t.Logf("%v: %+v", time.Since(began), r)
		})
	}
}
