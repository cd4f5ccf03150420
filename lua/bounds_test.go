package lua_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Redis accepts every limit that Validate accepts at its bounds.
func TestLimitsAtTheBounds(t *testing.T) {
	const long = 1 << 52 * time.Microsecond
	onEachStore(t, func(t *testing.T, st store) {
		for _, of := range []func(int64, time.Duration) hybridlimit.Limit{
			hybridlimit.FixedWindow, hybridlimit.SlidingWindow, hybridlimit.SlidingLog,
		} {
			for _, limit := range []hybridlimit.Limit{of(1<<53-1, time.Microsecond), of(1<<53-1, long), of(1<<52, time.Microsecond), of(1<<51, 2*time.Microsecond), of(1, long)} {
				if limit.Validate() != nil { // a sliding window's bound is lower
					continue
				}
				st.del(t, "k")
				a := st.one(t, "k", limit, algo.Op{Asks: []int64{limit.Rate}}, start)
				if a.Granted != limit.Rate {
					t.Errorf("%v: %+v", limit, a)
				}
				if a := st.one(t, "k", limit, algo.Op{Owed: 1, Asks: []int64{1}}, start); a.Granted != 0 || a.Level >= 0 {
					t.Errorf("%v: %+v", limit, a)
				}
			}
		}
	})
}
