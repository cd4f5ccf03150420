package member

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// TestRedisClock checks that the estimated lead of Redis's clock changes only when an
// answer proves it wrong. So the end of a window does not depend on how long answers take.
func TestRedisClock(t *testing.T) {
	const us = 1000
	period := algo.WindowOf(hybridlimit.FixedWindow(1, time.Second))
	var c redisClock
	if c.windowEnd(period, 5) != 0 {
		t.Error("windowEnd is known before the first answer")
	}
	for i, tc := range []struct {
		redisNow       int64 // µs
		sent, received int64 // µs
		end            int64 // µs of the hub's clock, of the window at received
	}{
		{10_000_300, 100, 500, 1_000_200}, // at least 9 999 800 ahead, at most 10 000 200
		{10_000_900, 600, 1_100, 1_000_200},
		{10_001_500, 1_400, 1_600, 1_000_100}, // at least 9 999 900
		{12_500_000, 2_500_050, 2_500_100, 3_000_100},
		{12_000_000, 2_600_000, 2_600_010, 3_599_999}, // set back by 600 ms; Redis's µs may have been almost over
	} {
		c.heard(tc.redisNow, tc.sent*us, tc.received*us)
		if end := c.windowEnd(period, tc.received*us); end/us != tc.end {
			t.Errorf("answer %d: the window ends at %d, want %d", i, end/us, tc.end)
		}
	}
}
