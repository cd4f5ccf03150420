package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// A cost above the burst, of a key that this process does not know, is told what
// others have left of it. However often it comes, it costs Redis a message now
// and then.
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
		if sent := link.Count("EVALSHA").Seen - before; sent > 2 { // one of them may be the fleet's
			t.Errorf("%d messages for a hundred calls", sent)
		}
		ask(t, other, "k", 2)
		time.Sleep(12 * time.Second)
		if res := ask(t, l, "k", 11); res.Remaining != 4 {
			t.Errorf("later: %+v, want 4 left", res)
		}
		// What this process has taken itself counts at once.
		ask(t, l, "k", 1)
		if res := ask(t, l, "k", 11); res.Remaining != 3 {
			t.Errorf("after a call: %+v, want 3 left", res)
		}
		// Without Redis nothing is known of a key that comes in.
		b.Kill()
		for range 3 {
			if res := ask(t, l, "new", 11); res.Allowed || res.RetryAfter != hybridlimit.Never || res.Source != hybridlimit.SourceStatic {
				t.Errorf("without Redis: %+v", res)
			}
		}
	})
}
