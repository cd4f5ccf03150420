package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestChargeWithoutRedis checks that units which are charged while Redis is known to be away are owed, and that Redis learns of
// them, also where it decides each call.
func TestChargeWithoutRedis(t *testing.T) {
	for name, limit := range together {
		inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
			l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
			time.Sleep(2300 * time.Millisecond)
			ask(t, l, "k", 1)
			time.Sleep(200 * time.Millisecond)
			b.Kill()
			for range 5 { // they open the breaker
				ask(t, l, "k", 1)
				time.Sleep(300 * time.Millisecond)
			}
			for range 10 {
				if _, err := l.Charge(t.Context(), "k", 2); err != nil {
					t.Errorf("%s, %v: %v", name, mode, err)
				}
			}
			b.Restart()
			time.Sleep(15 * time.Second)
			if s := l.Stats(); s.Dropped > 0 || s.Owed > 0 || s.Paid+s.Granted < 20 {
				t.Errorf("%s, %v: %+v", name, mode, s)
			}
			if left := ask(t, l, "k", 1).Remaining; left > 79 {
				t.Errorf("%s, %v: %d units are left after 20 were charged", name, mode, left)
			}
		})
	}
}
