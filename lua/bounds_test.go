package lua_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/lua"
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

// TestKeptFarAhead takes a unit back into buckets in debt. Some are full after the last time that is exact, in 2255.
// Redis and Go write the same state.
func TestKeptFarAhead(t *testing.T) {
	limit := hybridlimit.TokenBucket(1, 24*time.Hour, 52124)
	of := algo.LimitOf(limit)
	onEachStore(t, func(t *testing.T, st store) {
		for _, left := range []int64{-1, -30_000, -40_000, -52_123} {
			s := algo.State{
				Kind: algo.KindBucket, Unit: of.Unit(), Refill: 1, Level: left*of.Unit() - 1, Last: start, Born: start, Since: 5,
			}
			st.set(t, "k", lua.EncodeState(s))
			op := algo.Op{Refund: 1}
			want, _, _ := of.Apply(s, op, start+1)
			st.one(t, "k", limit, op, start+1)
			if got := st.get(t, "k"); got != lua.EncodeState(want) || want.Keep > 1<<53 {
				t.Errorf("%d units: %q, want %q", left, got, lua.EncodeState(want))
			}
		}
	})
}
