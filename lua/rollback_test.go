package lua_test

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// The replays of a batch that showed a gap show it too, because the first reply may be
// lost.
func TestGapIsReplayed(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		st.batch(t, envelope(1), []wire.Op{owe("k", 1)}, start)
		for i, want := range []struct {
			seq       int64
			gap, seen bool
		}{{5, true, false}, {5, true, true}, {5, true, true}, {6, false, false}, {6, false, true}} {
			if r := st.batch(t, envelope(want.seq), []wire.Op{owe("k", 1)}, start+int64(i)); r.Gap != want.gap || r.Seen != want.seen {
				t.Errorf("step %d: %+v", i, r)
			}
		}
	})
}

// rollback makes a bucket of five units that three processes used up. Redis is then rolled
// back to the state after the first process. a and b are the views of the other two.
func rollback(t *testing.T, st store) (a, b wire.View) {
	st.batch(t, envelope(1), []wire.Op{owe("k", 1)}, start)
	old := st.get(t, "k")
	seen := func(n, now int64) wire.View {
		ans := st.one(t, "k", ten, algo.Op{Owed: n}, now)
		return wire.View{Level: ans.Level, At: now, Born: ans.Born}
	}
	a, b = seen(3, start), seen(1, start+10)
	st.set(t, "k", old)
	return a, b
}

// A state that was rolled back gets the level of the lowest view, in any order of the
// views. Units debited since then are subtracted as well.
func TestRollbackIsMerged(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for order := range 2 {
			a, b := rollback(t, st)
			views := []wire.View{a, b}
			for i := range views {
				v := views[(i+order)%2]
				st.one(t, "k", ten, algo.Op{View: v, Lost: true, Owed: 1}, start+20)
			}
			if got := st.one(t, "k", ten, algo.Op{}, start+20); got.Level != -200_000+20 || got.Born != start+20 {
				t.Errorf("order %d: %+v", order, got)
			}
			st.del(t, "k", "env")
		}
	})
}

// A batch that shows a gap merges its views into states of the same "created at". Any other
// batch does so only for ops with Lost. A view from the future is not merged. A view less
// than a unit below the state is not merged.
func TestRollbackNeedsALoss(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			name      string
			seq       int64
			lost      bool
			level, at int64 // added to the view's
			merged    bool
		}{
			{name: "no loss", seq: 2},
			{name: "gap", seq: 3, merged: true},
			{name: "told", seq: 2, lost: true, merged: true},
			{name: "of the future", seq: 3, at: 11},
			{name: "less than a unit", seq: 3, level: 200_001},
			{name: "a unit", seq: 3, level: 200_000, merged: true},
		} {
			v, _ := rollback(t, st)
			v.Level, v.At = v.Level+tc.level, v.At+tc.at
			r := st.batch(t, envelope(tc.seq), []wire.Op{{Key: "k", Limit: ten, Op: algo.Op{View: v, Lost: tc.lost}}}, start+10)
			want := wire.Answer{Level: 400_010, Born: start}
			if tc.merged {
				want = wire.Answer{Level: v.Level + 10, Born: start + 10}
			}
			if got := r.Answers[0]; got.Level != want.Level || got.Born != want.Born {
				t.Errorf("%s: level %d born %d, want %d and %d", tc.name, got.Level, got.Born-start, want.Level, want.Born-start)
			}
			// The view is merged once: the new "created at" is no loss to the batch that set it.
			again := st.batch(t, envelope(tc.seq), []wire.Op{{Key: "k", Limit: ten, Op: algo.Op{View: v, Lost: tc.lost}}}, start+10)
			if !again.Seen || again.Answers[0].Level != want.Level || again.Answers[0].Born != want.Born {
				t.Errorf("%s, again: %+v", tc.name, again)
			}
			st.del(t, "k", "env")
		}
	})
}
