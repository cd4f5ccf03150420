package lua_test

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// leased makes a bucket of five units of which a process has leased two through the
// ledger. It returns an op that gives them back.
func leased(t *testing.T, st store) wire.Op {
	t.Helper()
	st.del(t, "k", "env", "epoch")
	ans := st.batch(t, envelope(1), []wire.Op{{Key: "k", Limit: ten, Op: algo.Op{Demand: 1e9, Div: 1}}}, start).Answers[0]
	if ans.Lease != 2 || ans.Gen == 0 {
		t.Fatalf("%+v: want a lease of two units in the ledger", ans)
	}
	return wire.Op{Key: "k", Limit: ten, Op: algo.Op{
		Gen: ans.Gen, Had: 2, Back: 2, View: wire.View{Level: ans.Level, At: start, Born: ans.Born},
	}}
}

// A batch that returns units is applied once, however often it arrives. The answer of the
// first time is given again, also if it was a refusal.
func TestReturnsAreReplayed(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		back := leased(t, st)
		for range 3 {
			if a := st.batch(t, envelope(2), []wire.Op{back}, start).Answers[0]; a.Refused || a.Level != 500_000 {
				t.Errorf("%+v: want a full bucket", a)
			}
		}
		for i := range 3 {
			a := st.batch(t, envelope(3), []wire.Op{back}, start)
			if !a.Answers[0].Refused || a.Answers[0].Level != 500_000 || a.Seen != (i > 0) {
				t.Errorf("%+v: want a refusal", a)
			}
		}
	})
}

// The views in a batch may be older than the chain of the process's envelopes: the batch
// came again after its envelope was evicted, and made a new one. Such a batch settles
// nothing. Otherwise it would take the units of another process off the ledger.
func TestABatchOlderThanItsChainSettlesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, evicted := range []bool{false, true} {
			back := leased(t, st)
			st.batch(t, envelope(2), []wire.Op{{Key: "k", Limit: ten, Op: algo.Op{Owed: 1, View: back.View}}}, start+1)
			if evicted {
				st.del(t, "env")
				st.batch(t, envelope(2), []wire.Op{{Key: "k", Limit: ten, Op: algo.Op{View: back.View}}}, start+2)
			}
			r := st.batch(t, envelope(3), []wire.Op{back}, start+3)
			if r.Gap || r.Answers[0].Refused != evicted {
				t.Errorf("evicted %t: %+v", evicted, r)
			}
			// From then on, the process has a view of its chain.
			back.View = wire.View{Level: r.Answers[0].Level, At: start + 3, Born: r.Answers[0].Born}
			if a := st.batch(t, envelope(4), []wire.Op{back}, start+4).Answers[0]; a.Refused == evicted {
				t.Errorf("evicted %t, with a new view: %+v", evicted, a)
			}
		}
	})
}

// An op of a queue or with a delay has no units in the ledger, so it returns nothing. An
// all-or-nothing batch only asks.
func TestReturnsOfOthersAreIgnored(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		back := leased(t, st)
		back.MaxDelay, back.Asks = 1, []int64{1}
		if a := st.one(t, "k", ten, back.Op, start); a.Level != 200_000 || a.Refused || a.Granted != 1 {
			t.Errorf("%+v: want no units back", a)
		}
		keys, argv := wire.EncodeAll([]wire.Op{{Key: "k", Limit: ten, Op: algo.Op{Asks: []int64{1}, Back: 1}}})
		if _, err := st.run(lua.Batch, keys, argv); err == nil {
			t.Error("an all-or-nothing batch that returns units is applied")
		}
	})
}
