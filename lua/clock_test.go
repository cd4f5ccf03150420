package lua_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Regression: the cap was applied to the level's text instead of the refilled level,
// because Lua compares strings of digits. A bucket in Redis then never refilled.
func TestBucketRefills(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.one(t, "k", ten, algo.Op{Owed: 5}, start)
		for i := int64(1); i <= 3; i++ {
			if a := st.one(t, "k", ten, algo.Op{Asks: []int64{1}}, start+i*100_000); a.Granted != 1 || a.Level != 0 {
				t.Errorf("after %d00 ms: %+v", i, a)
			}
		}
	})
}

// Regression: the clock stepped back to before a key's "created at". The write gave the key
// a new "created at", but the reply held the old one. The next view then seemed to come
// from another life of the key, and every debit counted twice.
func TestBirthSurvivesClockStep(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.one(t, "k", ten, algo.Op{Owed: 1}, start)
		a := st.one(t, "k", ten, algo.Op{Owed: 1}, start-3_600_000_000)
		view := wire.View{Level: a.Level, At: start - 3_600_000_000, Born: a.Born}
		a = st.one(t, "k", ten, algo.Op{View: view}, start-3_600_000_000)
		if a.Level != 300_000 || a.Born != start {
			t.Errorf("%+v", a)
		}
		if got, want := st.get(t, "k"), bucketText(100_000, 300_000, -3_600_000_000, start, 2); got != want {
			t.Errorf("state %q, want %q", got, want)
		}
	})
}

// Regression: after a step back of the clock, an envelope was stamped with a time before
// its keys' "created at". Each retry debited the keys again.
func TestRetryAfterClockStep(t *testing.T) {
	for _, back := range []time.Duration{500 * time.Millisecond, time.Hour} {
		t.Run(back.String(), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, st store) {
				now := start - back.Microseconds()
				st.one(t, "k", ten, algo.Op{Owed: 1}, start)
				for range 3 {
					if r := st.batch(t, envelope(1), []wire.Op{owe("k", 1)}, now); r.Answers[0].Level != 300_000 {
						t.Errorf("%+v", r)
					}
				}
				// The step may also come between a batch and its retry.
				if r := st.batch(t, envelope(1), []wire.Op{owe("k", 1)}, now-back.Microseconds()); !r.Seen || r.Answers[0].Level != 300_000 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// Regression: the library rounds a level when it converts it to another limit's sub-units,
// and a product above 2^53 could round up.
func TestRescaleEqualsGo(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		rng := testenv.Rand(t)
		for range testenv.Runs(200, 5000) {
			from, to := diffLimits[rng.IntN(len(diffLimits))], diffLimits[rng.IntN(len(diffLimits))]
			bf, bt := algo.BucketOf(from), algo.BucketOf(to)
			s := algo.State{Unit: bf.Unit, Refill: bf.Refill, Level: rng.Int64N(2*bf.Cap+1) - bf.Cap, Last: start, Born: start, Since: 1}
			st.set(t, "k", lua.EncodeState(s))
			if a := st.one(t, "k", to, algo.Op{}, start); a.Level != bt.Rescale(s.Level, bf.Unit) {
				t.Fatalf("level %d of %v became %d of %v, want %d", s.Level, from, a.Level, to, bt.Rescale(s.Level, bf.Unit))
			}
		}
	})
}
