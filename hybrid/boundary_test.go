package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestBoundaryBurst checks the burst of a fleet around the end of a window,
// from a third of a second before it to a third of a second after it. A fixed
// window admits up to twice its rate there. A sliding window and a log do not.
func TestBoundaryBurst(t *testing.T) {
	t.Parallel()
	const rate, window = 60, 10 * time.Second
	for _, tc := range []struct {
		limit       hybridlimit.Limit
		least, most int64 // without credit
	}{
		{hybridlimit.FixedWindow(rate, window), 2*rate - 2, 2 * rate},
		{hybridlimit.SlidingWindow(rate, window), rate - 2, rate + 2},
		{hybridlimit.SlidingLog(rate, window), rate, rate},
	} {
		t.Run(tc.limit.Algorithm.String(), func(t *testing.T) {
			for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					ls := []*hybrid.Limiter{
						newLimiter(t, b.Client(nil), tc.limit, hybrid.Config{Mode: mode}),
						newLimiter(t, b.Client(nil), tc.limit, hybrid.Config{Mode: mode}),
					}
					time.Sleep(2300 * time.Millisecond)
					credit := ls[0].Stats().Credit
					border := time.Now().Truncate(window).Add(2 * window)
					time.Sleep(time.Until(border.Add(-window / 30)))
					var sum int64
					for i := 0; time.Until(border) > -window/30; i++ {
						if ask(t, ls[i%2], "k", 1).Allowed {
							sum++
						}
						time.Sleep(4 * time.Millisecond)
					}
					if sum < tc.least || sum > tc.most+credit {
						t.Errorf("%v: %d units, want %d to %d + %d on credit", mode, sum, tc.least, tc.most, credit)
					}
				})
			}
		})
	}
}
