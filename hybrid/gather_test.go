package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestPaymentsAreGathered checks that keys with few calls, whose credit is two units, pay together: at most one message in half of T
// for all keys and tags of a process, and each unit within T.
func TestPaymentsAreGathered(t *testing.T) {
	const every, calls = 50 * time.Millisecond, 500
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeDeferred} {
		synctest.Test(t, func(t *testing.T) {
			b := redistest.NewBubble(t)
			var ls []*hybrid.Limiter
			for range 3 {
				ls = append(ls, newLimiter(t, b.Client(nil), hybridlimit.PerSecond(100), hybrid.Config{Mode: mode, SyncInterval: every, SyncEvery: 2}))
			}
			ready(t, ls...)
			time.Sleep(5 * time.Second)
			l := ls[0]
			before, began := l.Hub().Stats(), time.Now()
			for i := range calls {
				if res := ask(t, l, fmt.Sprint("k", i), 1); res.Source != hybridlimit.SourceCredit {
					t.Fatalf("call %d: %+v", i, res)
				}
				time.Sleep(2 * time.Millisecond)
				if i >= 50 && l.Stats().Owed > int64(every/(2*time.Millisecond))+1 {
					t.Fatalf("call %d: %d units owed, some for longer than T", i, l.Stats().Owed)
				}
			}
			took := time.Since(began)
			time.Sleep(2 * every)
			after := l.Hub().Stats()
			beats := 2 * (took/time.Second + 1)
			if n, most := after.Messages-before.Messages, uint64(2*took/every+beats); n > most || l.Stats().Owed != 0 {
				t.Errorf("%v: %d messages for %d calls in %v, want at most %d; %d units owed", mode, n, calls, took, most, l.Stats().Owed)
			}
		})
	}
}
