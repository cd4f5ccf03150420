package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestChargeAndPeekWithoutRedis charges while Redis is away: the share of this process pays, a bucket goes into debt, and
// Peek tells what a call would get, with the units that the share has left.
//
// Regression: the share did not hear of charges, and Peek had no answer, or the units of an old view.
func TestChargeAndPeekWithoutRedis(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		for _, limit := range []hybridlimit.Limit{hybridlimit.TokenBucket(1, time.Hour, 20), hybridlimit.FixedWindow(20, 24*time.Hour), hybridlimit.SlidingLog(20, 24*time.Hour)} {
			t.Run(mode.String()+" "+limit.Algorithm.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					l := newLimiter(t, b.Client(nil), limit, hybrid.Config{Mode: mode})
					ask(t, l, "other", 1)
					b.Kill()
					for range 10 { // until it is known
						time.Sleep(time.Second)
						_, _ = l.Allow(t.Context(), "other")
					}
					peek := func(remaining int64) {
						t.Helper()
						res, err := l.Peek(t.Context(), "k")
						if err != nil || res.Source != hybridlimit.SourceFallback || res.Remaining != remaining || res.Allowed != (remaining > 0) {
							t.Errorf("%+v, %v; want %d left", res, err, remaining)
						}
						if !res.Allowed && res.RetryAfter <= 0 {
							t.Errorf("%+v", res)
						}
					}
					peek(20)
					must(t)(l.Charge(t.Context(), "k", 5))
					peek(15)
					ask(t, l, "k", 3)
					peek(12)
					if res := must(t)(l.AllowAtMost(t.Context(), "k", 5)); res.Granted != 5 {
						t.Errorf("%+v", res)
					}
					peek(7)
					if res := must(t)(l.AllowAtMost(t.Context(), "k", 50)); res.Granted != 7 {
						t.Errorf("%+v", res)
					}
					peek(0)
					must(t)(l.Charge(t.Context(), "k", 5))
					peek(0)
					if res := must(t)(l.AllowN(t.Context(), "k", 1)); res.Allowed {
						t.Errorf("%+v", res)
					}
					if limit.Algorithm == hybridlimit.AlgTokenBucket {
						time.Sleep(5*time.Hour + 30*time.Minute) // the debt is paid
						peek(0)
						time.Sleep(time.Hour)
						peek(1)
					}
				})
			})
		}
	}
}
