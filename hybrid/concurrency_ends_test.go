package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestPermitsOfTheGone checks that the permits of a process which has ended with running calls are free about 3 s after the first
// refusal, also if no call comes in between.
func TestPermitsOfTheGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 2, hybridlimit.Concurrent(20), hybrid.ConcurrencyConfig{})
		if _, res := acquire(t, fleet[0], "k", 2); !res.Allowed {
			t.Fatal(res)
		}
		fleet[0].Hub().Close()
		time.Sleep(20 * time.Second)
		p, res := acquire(t, fleet[1], "k", 20)
		if p.Release(); res.Allowed {
			t.Error("the permits of a process that has ended are free before they have refused a call")
		}
		time.Sleep(3100 * time.Millisecond)
		if p, res = acquire(t, fleet[1], "k", 20); !res.Allowed {
			t.Errorf("the permits of a process that has ended are not free 3.1 s after they have refused a call: %+v", res)
		}
		p.Release()
	})
}
