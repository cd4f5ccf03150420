package lua_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
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
			for _, field := range []string{"", " h1ffffffffffffe", " k1ffffffffffffe", " t1ffffffffffffe"} { // 2^53 - 2, relative
				raw := lua.EncodeState(algo.State{
					Kind: algo.KindBucket, Unit: of.Unit(), Refill: 1, Level: left*of.Unit() - 1, Last: start, Born: start, Since: 5,
				}) + field
				st.set(t, "k", raw)
				s, ok := wire.DecodeState(raw)
				op := algo.Op{Refund: 1}
				want, _, _ := of.Apply(s, op, start+1)
				st.one(t, "k", limit, op, start+1)
				if got := st.get(t, "k"); !ok || got != lua.EncodeState(want) || max(want.Keep, want.Slot, want.Ahead) > 1<<53 {
					t.Errorf("%q: %q, want %q", raw, got, lua.EncodeState(want))
				}
			}
		}
	})
}
