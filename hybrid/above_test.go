package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestAboveTheBurstOfAnUnknownKey checks a cost above the burst for a key that
// this process does not know. The answer has the units that other processes
// have left of the key. Repeated calls cost Redis only a message now and then.
func TestAboveTheBurstOfAnUnknownKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		other := newLimiter(t, b.Client(nil), still(10), hybrid.Config{Mode: hybrid.ModeExact})
		l := newLimiter(t, link.Client(nil), still(10), hybrid.Config{})
		ask(t, other, "k", 4)
		time.Sleep(2 * time.Second)
		before := link.Count("EVALSHA").Seen
		for range 100 {
			res := ask(t, l, "k", 11)
			if res.Allowed || res.RetryAfter != hybridlimit.Never || res.Remaining != 6 || res.ResetAfter <= 3*time.Hour || res.ResetAfter > 4*time.Hour {
				t.Fatalf("%+v, want 6 left", res)
			}
		}
		if sent := link.Count("EVALSHA").Seen - before; sent > 2 { // one of them may be a heartbeat
			t.Errorf("%d messages for a hundred calls, want at most 2", sent)
		}
		ask(t, other, "k", 2)
		time.Sleep(12 * time.Second)
		if res := ask(t, l, "k", 11); res.Remaining != 4 {
			t.Errorf("later: %+v, want 4 left", res)
		}
		// Units that this process takes count at once.
		ask(t, l, "k", 1)
		if res := ask(t, l, "k", 11); res.Remaining != 3 {
			t.Errorf("after a call: %+v, want 3 left", res)
		}
		// Without Redis nothing is known of a new key.
		b.Kill()
		for range 3 {
			if res := ask(t, l, "new", 11); res.Allowed || res.RetryAfter != hybridlimit.Never || res.Source != hybridlimit.SourceStatic {
				t.Errorf("without Redis: %+v", res)
			}
		}
	})
}
