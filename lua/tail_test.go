package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Regression: an unknown field of a later version made a state count as lost, and a lost
// bucket is full. A fleet of two versions would have granted one burst too many with each
// change of the format.
func TestFieldsOfALaterVersionStay(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, limit := range []hybridlimit.Limit{
			hybridlimit.PerHour(100), hybridlimit.LeakyQueue(100, time.Hour, 100), hybridlimit.FixedWindow(100, time.Hour), hybridlimit.SlidingWindow(100, time.Hour),
			hybridlimit.TokenBucket(3, 7*time.Second, 50),
		} {
			n := limit.BurstSize()
			for _, fields := range []string{" y5", " a0", " xdead y-1f", " y5 y5"} {
				st.del(t, "k")
				st.one(t, "k", limit, algo.Op{Asks: []int64{n}}, start)
				text := st.get(t, "k")
				st.set(t, "k", text+fields)
				if a := st.one(t, "k", limit, algo.Op{Asks: []int64{n}}, start); a.Granted != 0 || a.Born != start {
					t.Errorf("%v, %q: %+v", limit, fields, a)
				}
				s, ok := wire.DecodeState(text + fields)
				if !ok || s.More != fields {
					t.Errorf("%q: %+v, %t", text+fields, s, ok)
				}
				for _, op := range []algo.Op{{Owed: 1}, {Refund: 1}, {Reset: true}, {Owed: 2}} {
					st.one(t, "k", limit, op, start+1)
					if got := st.get(t, "k"); !strings.HasSuffix(got, fields) {
						t.Errorf("%v, %q: after %+v: %q", limit, fields, op, got)
					}
				}
			}
			// The tail is bounded, because other programs can write to Redis.
			text := st.get(t, "k")
			st.set(t, "k", text+strings.Repeat(" y5", 1000))
			if a := st.one(t, "k", limit, algo.Op{}, start); a.Born != 0 {
				t.Errorf("%v: a tail of 3000 bytes was read: %+v", limit, a)
			}
			if _, ok := wire.DecodeState(text + strings.Repeat(" y5", 1000)); ok {
				t.Errorf("%v: a tail of 3000 bytes was decoded", limit)
			}
		}
	})
}
