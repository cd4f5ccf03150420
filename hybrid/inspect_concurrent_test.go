package hybrid_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestInspectBesideCalls checks that Inspect and InspectRedis disturb nothing:
// with concurrent calls, syncs and evictions the books balance to the unit.
func TestInspectBesideCalls(t *testing.T) {
	t.Parallel()
	calls := 200
	if testenv.Full() {
		calls = 600
	}
	synctest.Test(t, func(t *testing.T) {
		b, m := redistest.NewBubble(t), &metertest.Provider{}
		h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m})
		l := add(t, h, hybridlimit.TokenBucket(500, time.Second, 1000), hybrid.Config{Name: "api", MaxKeys: 4, LogDenials: time.Millisecond})
		time.Sleep(2100 * time.Millisecond)
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for n := range calls {
					key := fmt.Sprint("k", (g+n)%8)
					switch {
					case g < 4:
						ask(t, l, key, 1)
					case g == 4:
						inspect(t, l, key)
					default:
						if _, err := l.InspectRedis(t.Context(), key); err != nil {
							t.Error(err)
						}
						h.Stats()
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		m.Collect(t)
		time.Sleep(2 * time.Second)
		s := l.Stats()
		balance(t, s)
		if s.Decisions() != int64(4*calls) {
			t.Errorf("%d decisions, want %d: Inspect must not be counted", s.Decisions(), 4*calls)
		}
	})
}
