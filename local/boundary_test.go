package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestBoundaryBurst counts the units admitted 10 ms before and 10 ms after the border of
// a window. Fixed windows admit two bursts, the other algorithms do not.
func TestBoundaryBurst(t *testing.T) {
	for _, tc := range []struct {
		limit         hybridlimit.Limit
		before, after int64
	}{
		{hybridlimit.FixedWindow(100, time.Second), 100, 100},
		{hybridlimit.SlidingWindow(100, time.Second), 100, 1}, // 10 ms of decrease
		{hybridlimit.SlidingLog(100, time.Second), 100, 0},
		{hybridlimit.TokenBucket(100, time.Second, 100), 100, 2}, // 20 ms of refill
		{hybridlimit.LeakyBucket(100, time.Second, 100), 100, 2},
	} {
		l, start := at(t, tc.limit, Config{}) // a border of seconds
		border := start.Add(time.Second)
		take := func(now time.Time) int64 {
			res, err := l.atMostAt(now, "k", 1000, "")
			if err != nil {
				t.Fatal(err)
			}
			return res.Granted
		}
		before, after := take(border.Add(-10*ms)), take(border)
		after += take(border.Add(10 * ms))
		if before != tc.before || after != tc.after {
			t.Errorf("%v: %d before the border and %d after, want %d and %d", tc.limit, before, after, tc.before, tc.after)
		}
	}
}
