package lua_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// window is a window of 10 s that begins at start. The limits below have 10 units in it.
const window int64 = 10_000_000

var (
	fixed   = hybridlimit.FixedWindow(10, 10*time.Second)
	sliding = hybridlimit.SlidingWindow(10, 10*time.Second)
	logged  = hybridlimit.SlidingLog(10, 10*time.Second)
)

// A fixed window admits twice its rate around a boundary. A sliding one and a
// log do not.
func TestBurstAroundABoundary(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			limit          hybridlimit.Limit
			granted, retry int64
		}{
			{fixed, 10, window},
			// For ten units the whole last window has to fade.
			{sliding, 0, 2*window - window},
			{logged, 0, window - 1},
		} {
			st.del(t, "k")
			if a := st.one(t, "k", tc.limit, algo.Op{Asks: []int64{10}}, start+window-1); a.Granted != 10 {
				t.Errorf("%v: before the boundary: %+v", tc.limit, a)
			}
			a := st.one(t, "k", tc.limit, algo.Op{Asks: []int64{10}}, start+window)
			if a.Granted != tc.granted || a.Retry != tc.retry {
				t.Errorf("%v: after it: %+v", tc.limit, a)
			}
			late := st.one(t, "k", tc.limit, algo.Op{Asks: []int64{10}}, start+window+a.Retry)
			early := st.one(t, "k", tc.limit, algo.Op{Asks: []int64{10}}, start+window+a.Retry-1)
			if tc.granted == 0 && (late.Granted != 10 || early.Granted != 0) {
				t.Errorf("%v: at the retry %+v, a µs earlier %+v", tc.limit, late, early)
			}
		}
	})
}

// The next window repays the excess of a fixed window, and the window after it repays the
// rest. A full debt blocks one window.
func TestFixedWindowCarriesTheExcess(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		if a := st.one(t, "k", fixed, algo.Op{Owed: 13}, start); a.Level != -3 || a.Retry != window {
			t.Errorf("%+v", a)
		}
		if a := st.one(t, "k", fixed, algo.Op{Asks: []int64{8}}, start+5); a.Granted != 0 || a.Retry != 2*window-5 {
			t.Errorf("eight units beside a carry of three: %+v", a)
		}
		if a := st.one(t, "k", fixed, algo.Op{}, start+window); a.Level != 7 {
			t.Errorf("next: %+v", a)
		}
		if a := st.one(t, "k", fixed, algo.Op{Owed: 100}, start+window); a.Level != -10 || a.Retry != 2*window {
			t.Errorf("floor: %+v", a)
		}
		for i, want := range []int64{-10, 0, 10} {
			if a := st.one(t, "k", fixed, algo.Op{}, start+int64(i+1)*window); a.Level != want {
				t.Errorf("after %d more windows: %+v, want level %d", i, a, want)
			}
		}
	})
}

// Late units of the last window count there: they are carried, or they fade. Older units
// are dropped. The answer reports this for every copy of the batch.
func TestLateUnits(t *testing.T) {
	number := start / window
	late := func(limit hybridlimit.Limit, win int64) wire.Op {
		return wire.Op{Key: "k", Limit: limit, Op: algo.Op{Owed: 6, Win: win, Asks: []int64{2}}}
	}
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			limit                 hybridlimit.Limit
			current, last, before int64 // level after it, in units
		}{
			// With eight units in the last window a fixed window carries nothing, with 14 it carries four.
			{fixed, 10 - 6 - 2, 10 - 4 - 2, 10 - 2},
			// Half of them have faded. Beside the six units of this window, two more do not fit.
			{sliding, 10 - 4 - 6, 10 - 7 - 2, 10 - 4 - 2},
		} {
			unit := algo.LimitOf(tc.limit).Unit()
			for name, op := range map[string]struct {
				win, want int64
				dropped   bool
			}{
				"current": {0, tc.current, false}, "by its number": {number + 1, tc.current, false}, "future": {number + 9, tc.current, false},
				"last": {number, tc.last, false}, "before": {number - 1, tc.before, true}, "long ago": {1, tc.before, true},
			} {
				st.del(t, "k", "env")
				st.one(t, "k", tc.limit, algo.Op{Owed: 8}, start)
				ops := []wire.Op{late(tc.limit, op.win)}
				now := start + window + window/2
				first := st.batch(t, envelope(1), ops, now).Answers[0]
				again := st.batch(t, envelope(1), ops, now)
				if a := again.Answers[0]; !again.Seen || a != first && a.Retry == first.Retry {
					t.Errorf("%v, %s: again %+v, first %+v", tc.limit, name, a, first)
				}
				if first.Dropped != op.dropped || first.Level != op.want*unit {
					t.Errorf("%v, %s: %+v, want %d units", tc.limit, name, first, op.want)
				}
			}
		}
	})
}

// A lease and every other permission of an answer end with the window. Too close to the end
// there is no lease. A lease is at most a part of the units left, and at most the demand
// until the end of the window, of five seconds at most.
func TestWindowLeases(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(1000, 10*time.Second), hybridlimit.SlidingWindow(1000, 10*time.Second)} {
			for _, tc := range []struct {
				before      int64 // µs before the window's end
				op          algo.Op
				lease, life int64
			}{
				{5_000_000, algo.Op{Demand: 1e6, Div: 4}, 250, 5_000_000},
				{8_000_000, algo.Op{Demand: 10_000, Div: 4}, 42, 8_000_000},
				{1_000_000, algo.Op{Demand: 100_000, Div: 4}, 90, 1_000_000},
				{500_000, algo.Op{Demand: 100_000, Div: 4}, 42, 500_000},
				{algo.MinLease, algo.Op{Demand: 1e6, Div: 4}, 15, algo.MinLease},
				{algo.MinLease - 1, algo.Op{Demand: 1e6, Div: 4}, 0, 0},
				{5_000_000, algo.Op{Demand: 1e6, Div: 4, Asks: []int64{1001}}, 0, 5_000_000},
				{5_000_000, algo.Op{Demand: 1e6}, 0, 5_000_000},
			} {
				st.del(t, "k")
				a := st.one(t, "k", limit, tc.op, start+window-tc.before)
				if a.Lease != tc.lease || a.Life != tc.life || a.Ends != tc.before || a.Life > a.Ends {
					t.Errorf("%v, %d µs before the end, %+v: %+v", limit, tc.before, tc.op, a)
				}
			}
		}
	})
}

// A view restores the usage of a lost window, in that window only. The highest usage
// counts.
func TestWindowViews(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, limit := range []hybridlimit.Limit{fixed, sliding} {
			unit := algo.LimitOf(limit).Unit()
			st.del(t, "k")
			st.one(t, "k", limit, algo.Op{Owed: 4}, start)
			now := start + window + window/2
			first := st.one(t, "k", limit, algo.Op{Asks: []int64{3}}, now)
			second := st.one(t, "k", limit, algo.Op{Asks: []int64{2}}, now)
			seen := func(a wire.Answer) wire.View {
				return wire.View{Level: a.Level, Prev: a.Refill, At: now, Born: a.Born}
			}
			st.del(t, "k")
			for i, tc := range []struct {
				view  wire.View
				at    int64
				level int64
			}{
				{seen(first), now + 1, first.Level - 5*unit},
				{seen(second), now + 1, second.Level - 5*unit},
				{seen(first), now + 1, second.Level - 5*unit},
				{seen(second), now + 1, second.Level - 5*unit},
			} {
				op := algo.Op{View: tc.view}
				if i == 0 {
					op.Owed = 5
				}
				if a := st.one(t, "k", limit, op, tc.at); a.Level != tc.level+a.Refill {
					t.Errorf("%v, %d: %+v, want level %d", limit, i, a, tc.level)
				}
			}
			// The next window takes nothing from it.
			st.del(t, "k")
			if a := st.one(t, "k", limit, algo.Op{View: seen(second)}, start+2*window); a.Level != 10*unit || a.Born != 0 {
				t.Errorf("%v: next window: %+v", limit, a)
			}
			// A state that was rolled back begins a new life.
			old := st.one(t, "k", limit, algo.Op{Owed: 1}, now)
			text := st.get(t, "k")
			late := st.one(t, "k", limit, algo.Op{Owed: 5}, now)
			st.set(t, "k", text)
			if a := st.one(t, "k", limit, algo.Op{View: seen(late)}, now+1); a.Level < old.Level || a.Born != old.Born {
				t.Errorf("%v: no loss: %+v", limit, a)
			}
			if a := st.one(t, "k", limit, algo.Op{View: seen(late), Lost: true}, now+1); a.Level != late.Level || a.Born != now+1 {
				t.Errorf("%v: rolled back: %+v", limit, a)
			}
		}
	})
}

// If the clock steps back by up to a second, the window stays. If it steps back further, the
// window moves with the clock. Used units are never forgiven.
func TestWindowsWhenTheClockStepsBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, limit := range []hybridlimit.Limit{fixed, sliding} {
			for _, back := range []int64{1, 1_000_000, 1_000_001, 86_400_000_000} {
				st.del(t, "k")
				st.one(t, "k", limit, algo.Op{Asks: []int64{10}}, start)
				if a := st.one(t, "k", limit, algo.Op{Asks: []int64{1}}, start-back); a.Granted != 0 || a.Level > 0 || a.Ends < 1 {
					t.Errorf("%v, %d µs back: %+v", limit, back, a)
				}
			}
		}
	})
}
