package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestDebtUnderALimitThatCountsNothing checks that a key pays its owed units although its limit
// counts nothing by then, because of SetLimit or of a limit that came with a call. In an earlier
// version the sync was sent under the new limit, whose arithmetic divides by zero, and the process
// ended.
func TestDebtUnderALimitThatCountsNothing(t *testing.T) {
	for name, limit := range map[string]hybridlimit.Limit{"blocked": hybridlimit.Blocked(), "unlimited": hybridlimit.Unlimited()} {
		for how, change := range map[string]func(t *testing.T, l *hybrid.Limiter){
			"SetLimit": func(t *testing.T, l *hybrid.Limiter) {
				if err := l.SetLimit(limit); err != nil {
					t.Fatal(err)
				}
				ask(t, l, "k", 1)
			},
			"AllowLimit": func(t *testing.T, l *hybrid.Limiter) { must(t)(l.AllowLimit(t.Context(), "k", 1, limit)) },
		} {
			for _, kind := range []hybridlimit.Limit{still(2000), hybridlimit.FixedWindow(2000, time.Hour), hybridlimit.SlidingWindow(2000, time.Hour)} {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					l := newLimiter(t, b.Client(nil), kind, hybrid.Config{Mode: hybrid.ModeDeferred})
					time.Sleep(3100 * time.Millisecond)
					ask(t, l, "k", 5)
					ask(t, l, "k", 7) // owed for 50 ms
					change(t, l)
					time.Sleep(time.Second)
					s := l.Stats()
					balance(t, s)
					if s.Owed != 0 || s.Dropped != 0 || s.Paid+s.Granted != 12 {
						t.Errorf("%s by %s of %v: %+v", name, how, kind, s)
					}
					if err := l.SetLimit(kind); err != nil {
						t.Fatal(err)
					}
					if res := ask(t, l, "k", 1); !res.Allowed || res.Remaining != 2000-13 {
						t.Errorf("%s by %s of %v: back, %+v", name, how, kind, res)
					}
				})
			}
		}
	}
}
