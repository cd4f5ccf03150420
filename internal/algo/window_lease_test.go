package algo_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// counted returns the state of a window at a time, written in an earlier window.
func counted(w algo.Window, at, cur, prev, next int64) algo.State {
	s := algo.State{Kind: algo.KindFixed, Born: at - 2*w.Period, Period: w.Period, Win: w.Number(at), Cur: cur, Prev: prev, Next: next}
	if w.Sliding {
		s.Kind = algo.KindSliding
	} else {
		s.Debt = max(cur-w.Rate, 0)
	}
	return s
}

func TestLeaseAheadSizes(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	fixed, sliding := hybridlimit.FixedWindow(100, s), hybridlimit.SlidingWindow(100, s)
	for _, tc := range []struct {
		name            string
		limit           hybridlimit.Limit
		cur, prev, next int64
		demand          int64 // units a second
		n               int64 // processes
		want            int64
	}{
		// A window of 100 may run out above 87.
		{"roomy: 16 and 1.5 standard deviations", fixed, 0, 0, 0, 16, 2, 22},
		{"the last window was near its limit: 2 deviations less", fixed, 0, 88, 0, 16, 2, 8},
		{"and at 87 it was not", fixed, 0, 87, 0, 16, 2, 22},
		{"this one is near its limit", fixed, 88, 0, 0, 16, 2, 8},
		{"and with 13 units left it is not", fixed, 87, 0, 0, 16, 2, 22},
		{"four a second are too few near the limit", fixed, 88, 0, 0, 4, 2, 0},
		{"the demand of a long window: 5 seconds, 1 deviation less", hybridlimit.FixedWindow(1000, 10*s), 0, 0, 0, 20, 2, 90},
		{"of a short one: all of it", hybridlimit.FixedWindow(100, 100*ms), 0, 0, 0, 160, 2, 22},
		{"an equal share of the 87", fixed, 0, 0, 0, 1000, 2, 43},
		{"alone", fixed, 0, 0, 0, 1000, 1, 87},
		{"little room: others lease 82", fixed, 0, 0, 82, 1000, 1, 5},
		{"an eighth stays for processes without a lease", fixed, 0, 0, 87, 1000, 1, 0},
		{"others lease all", fixed, 0, 0, 100, 1000, 1, 0},
		{"this window carries 50", fixed, 150, 0, 0, 1000, 1, 37},
		{"a full window carries nothing", fixed, 100, 0, 0, 1000, 1, 87},
		// The last quarter of the window is left. It needs a third of the use so far.
		{"of a sliding window: all but a sixteenth", sliding, 0, 0, 0, 1000, 1, 94},
		{"less this window and its rest, 20 and 7", sliding, 20, 0, 0, 1000, 1, 67},
		{"as many as in the last window: no rest", sliding, 20, 20, 0, 1000, 1, 74},
		{"the last window had 25: a rest of 5", sliding, 20, 25, 0, 1000, 1, 69},
		{"at this pace, 7 and not 20", sliding, 20, 40, 0, 1000, 1, 67},
		{"15 more than in the last window: 5 more to come", sliding, 20, 5, 0, 1000, 1, 69},
		{"an equal share", sliding, 20, 0, 0, 1000, 2, 33},
		{"the share is the same beside the leases of others", sliding, 20, 0, 30, 1000, 2, 33},
		{"and there may be no room for it", sliding, 20, 0, 60, 1000, 2, 7},
		{"by demand", sliding, 20, 0, 0, 16, 2, 22},
		{"near the limit", sliding, 20, 88, 0, 16, 2, 8},
		{"nothing at overload: 80 and 27", sliding, 80, 0, 0, 1000, 1, 0},
		{"nor in debt", sliding, 150, 0, 0, 1000, 1, 0},
	} {
		w := algo.WindowOf(tc.limit)
		at := start + w.Period*3/4
		before := counted(w, at, tc.cur, tc.prev, tc.next)
		op := algo.Op{Ahead: true, Demand: tc.demand * 1000, Div: 2 * tc.n}
		after, ans, dirty := w.Apply(before, op, at)
		if ans.Lease != tc.want || after.Next != tc.next+tc.want || after.Cur != tc.cur || after.Since != tc.want || dirty != (tc.want > 0) {
			t.Errorf("%s: lease %d, %+v, dirty %t; want a lease of %d", tc.name, ans.Lease, after, dirty, tc.want)
		}
		if ans.Cap != w.Cap-after.Next*w.Unit || ans.Level != w.Level(after, at) {
			t.Errorf("%s: the answer tells %d of %d", tc.name, ans.Level, ans.Cap)
		}
		if gen := after.Win + 1; tc.want > 0 && (ans.Gen != gen || ans.Life == 0) || tc.want == 0 && ans.Gen != 0 {
			t.Errorf("%s: a lease of window %d for %d µs, want window %d", tc.name, ans.Gen, ans.Life, gen)
		}
		for name, op := range map[string]algo.Op{
			"no demand": {Ahead: true, Div: op.Div}, "no lease is wanted": {Ahead: true, Demand: op.Demand}, "of this window": {Demand: op.Demand, Div: op.Div},
		} {
			if after, ans, _ := w.Apply(before, op, at); after.Next != tc.next || ans.Gen != 0 {
				t.Errorf("%s: %s: %+v leased", tc.name, name, ans)
			}
		}
	}
}

// In the window of its birth, a state may lack leases of the next window that a view will tell. A short window has no time for
// such a lease.
func TestLeaseAheadNeedsAnOldStateAndAPeriod(t *testing.T) {
	op := algo.Op{Ahead: true, Demand: 1e9, Div: 2}
	for _, sliding := range []bool{false, true} {
		for _, tc := range []struct {
			name   string
			period int64
			born   int64 // µs after the begin of the window
			leases bool
		}{
			{"no state", 1e6, -1e9, false},
			{"the first µs of the window", 1e6, 0, false},
			{"the last µs of the last window", 1e6, -1, true},
			{"the shortest period", algo.AheadPeriod, -1, true},
			{"a shorter one", algo.AheadPeriod - 1, -1, false},
		} {
			l := hybridlimit.FixedWindow(100, time.Duration(tc.period)*time.Microsecond)
			if sliding {
				l.Algorithm = hybridlimit.AlgSlidingWindow
			}
			w := algo.WindowOf(l)
			begin := w.Number(start) * w.Period
			s := counted(w, begin, 1, 0, 0)
			if s.Born = begin + tc.born; tc.born == -1e9 {
				s = algo.State{}
			}
			if s, ans, _ := w.Apply(s, op, begin+w.Period*3/4); (ans.Lease > 0) != tc.leases || s.Next != ans.Lease {
				t.Errorf("sliding %t, %s: %d leased, %+v", sliding, tc.name, ans.Lease, s)
			}
		}
	}
}

func TestNextWindowBeginsWithItsLeases(t *testing.T) {
	fixed, sliding := algo.WindowOf(hybridlimit.FixedWindow(10, time.Second)), algo.WindowOf(hybridlimit.SlidingWindow(10, time.Second))
	for _, tc := range []struct {
		name            string
		w               algo.Window
		cur, next       int64
		windows         int64 // later
		wantCur, wantPr int64
	}{
		{"this window", fixed, 5, 3, 0, 5, 0},
		{"the next", fixed, 5, 3, 1, 3, 5},
		{"with the carried units", fixed, 14, 3, 1, 7, 14},
		{"the one after", fixed, 14, 3, 2, 0, 7},
		{"which carries too", fixed, 20, 10, 2, 10, 20},
		{"the fourth", fixed, 5, 3, 3, 0, 0},
		{"long after", fixed, 5, 3, 1000, 0, 0},
		{"the next of a sliding one", sliding, 5, 3, 1, 3, 5},
		{"carries nothing", sliding, 14, 3, 1, 3, 14},
		{"the one after that", sliding, 5, 3, 2, 0, 3},
	} {
		s := counted(tc.w, start, tc.cur, 0, tc.next)
		at := start + tc.windows*tc.w.Period
		got := tc.w.Load(s, at)
		if next := got.Next; got.Cur != tc.wantCur || got.Prev != tc.wantPr || (next != 0) != (tc.windows == 0) || got.Win != tc.w.Number(at) {
			t.Errorf("%s: %+v, want %d and %d of the last", tc.name, got, tc.wantCur, tc.wantPr)
		}
	}
}

// The state must outlive the windows whose count it knows: otherwise the leased units would be admitted once more.
func TestTTLCoversLeasesOfTheNextWindow(t *testing.T) {
	const rest = (algo.Generation + algo.ClockSlack) / 1000
	for _, l := range []hybridlimit.Limit{hybridlimit.FixedWindow(10, 7*time.Second), hybridlimit.SlidingWindow(10, 7*time.Second)} {
		w := algo.WindowOf(l)
		now := w.Number(start)*w.Period + 2_000_000
		for _, tc := range []struct{ cur, next, windows int64 }{{5, 0, 2}, {5, 1, 3}, {0, 1, 3}} {
			s := counted(w, now, tc.cur, 0, tc.next)
			want := (s.Win+tc.windows)*w.Period - now
			if got := w.TTL(s, now); got != want/1000+rest {
				t.Errorf("%v: %d units, %d of the next window: %d ms, want %d", l, tc.cur, tc.next, got, want/1000+rest)
			}
		}
	}
}

func TestChangedPeriodCountsLeasesOfTheNextWindow(t *testing.T) {
	for _, tc := range []struct {
		name            string
		algorithm       hybridlimit.Algorithm
		cur, prev, next int64
		want            int64
	}{
		{"fixed", hybridlimit.AlgFixedWindow, 5, 9, 3, 8},
		{"nothing but leases", hybridlimit.AlgFixedWindow, 0, 0, 3, 3},
		{"sliding, with three quarters of the last", hybridlimit.AlgSlidingWindow, 5, 8, 3, 14},
	} {
		now := int64(start + 250_000)
		old := algo.WindowOf(hybridlimit.Limit{Algorithm: tc.algorithm, Rate: 20, Period: time.Second})
		w := algo.WindowOf(hybridlimit.Limit{Algorithm: tc.algorithm, Rate: 20, Period: 3 * time.Second})
		got := w.Load(counted(old, now, tc.cur, tc.prev, tc.next), now)
		if got.Cur != tc.want || got.Prev != 0 || got.Next != 0 || got.Period != w.Period {
			t.Errorf("%s: %+v, want %d units in this window", tc.name, got, tc.want)
		}
	}
}

func TestResetClearsLeasesOfTheNextWindow(t *testing.T) {
	for _, l := range []hybridlimit.Limit{hybridlimit.FixedWindow(10, time.Second), hybridlimit.SlidingWindow(10, time.Second)} {
		w := algo.WindowOf(l)
		s := counted(w, start, 5, 2, 3)
		view := algo.View{Level: 2 * w.Unit, Next: 3, At: start, Born: s.Born - 1}
		s, ans, dirty := w.Apply(s, algo.Op{Reset: true, View: view}, start+1000)
		if s.Cur+s.Prev+s.Next+s.Since != 0 || ans.Cap != w.Cap || ans.Level != w.Cap || !dirty {
			t.Errorf("%v: %+v, %+v", l, s, ans)
		}
		s, _, _ = w.Apply(s, algo.Op{View: view}, start+2000)
		if s.Next != 0 {
			t.Errorf("%v: a view from before tells %d leased units", l, s.Next)
		}
	}
}

func TestReturnOfTheNextWindow(t *testing.T) {
	for _, l := range []hybridlimit.Limit{hybridlimit.FixedWindow(10, time.Second), hybridlimit.SlidingWindow(10, time.Second)} {
		w := algo.WindowOf(l)
		before := counted(w, start, 5, 4, 3)
		before.Since = 8
		for _, tc := range []struct {
			name            string
			window          int64 // from the current
			back            int64
			alter           func(*algo.Op)
			cur, prev, next int64
			refused         bool
		}{
			{"of the next window", 1, 2, nil, 5, 4, 1, false},
			{"more than it has", 1, 4, nil, 5, 4, 0, false},
			{"of this one", 0, 2, nil, 3, 4, 3, false},
			{"of the last", -1, 2, nil, 5, 2, 3, false},
			{"of the one after the next", 2, 2, nil, 5, 4, 3, true},
			{"of the one before the last", -2, 2, nil, 5, 4, 3, true},
			{"after a loss", 1, 2, func(op *algo.Op) { op.Lost = true }, 5, 4, 3, true},
			{"after a gap", 1, 2, func(op *algo.Op) { op.Broken = true }, 5, 4, 3, true},
			{"of another state", 1, 2, func(op *algo.Op) { op.View = algo.View{} }, 5, 4, 3, true},
		} {
			op := algo.Op{Back: tc.back, Gen: before.Win + tc.window, View: algo.View{Level: w.Level(before, start), Prev: 4, Next: 3, At: start, Born: before.Born}}
			if tc.alter != nil {
				tc.alter(&op)
			}
			s, ans, dirty := w.Apply(before, op, start)
			if s.Cur != tc.cur || s.Prev != tc.prev || s.Next != tc.next || ans.Refused != tc.refused || dirty == tc.refused {
				t.Errorf("%v: %s: %+v, refused %t, dirty %t", l, tc.name, s, ans.Refused, dirty)
			}
			if since := before.Since - tc.back; !tc.refused && s.Since != since {
				t.Errorf("%v: %s: %d units since the birth, want %d", l, tc.name, s.Since, since)
			}
		}
	}
}

// A view tells the leases of the next window to a state that has lost them, once. The level in the view of a sliding window is
// the lower of the estimate and the bound at the border.
func TestViewTellsLeasesOfTheNextWindow(t *testing.T) {
	for _, tc := range []struct {
		algorithm hybridlimit.Algorithm
		prev      int64
		level     int64 // sub-units: a unit of the sliding window is 10⁶
	}{
		{hybridlimit.AlgFixedWindow, 9, 15},
		{hybridlimit.AlgSlidingWindow, 0, 12e6},
		{hybridlimit.AlgSlidingWindow, 4, 12e6}, // 5 and half of 4 are used
		{hybridlimit.AlgSlidingWindow, 8, 11e6}, // 5 and half of 8
	} {
		w := algo.WindowOf(hybridlimit.Limit{Algorithm: tc.algorithm, Rate: 20, Period: time.Second})
		const at = start + 500_000
		seen := counted(w, at, 5, tc.prev, 3)
		if got := w.Level(seen, at); got != tc.level {
			t.Errorf("%v: level %d, want %d", tc, got, tc.level)
		}
		told := tc.prev
		if !w.Sliding {
			told = 0
		}
		view := algo.View{Level: tc.level, Prev: told, Next: 3, At: at, Born: seen.Born}
		s, ans, _ := w.Apply(algo.State{}, algo.Op{View: view}, at+100_000)
		if s.Cur != 5 || s.Prev != told || s.Next != 3 || ans.Cap != w.Cap-3*w.Unit {
			t.Errorf("%v: %+v", tc, s)
		}
		if again, _, dirty := w.Apply(s, algo.Op{View: view}, at+100_000); again != s || dirty {
			t.Errorf("%v: %+v after it is told again", tc, again)
		}
		s.Next = 4 // the larger count holds
		if s, _, _ = w.Apply(s, algo.Op{View: view}, at+100_000); s.Next != 4 {
			t.Errorf("%v: %+v after a view of fewer leases", tc, s)
		}
		if s, _, _ := w.Apply(algo.State{}, algo.Op{View: view}, start+w.Period); s.Cur+s.Next != 0 {
			t.Errorf("%v: in the next window: %+v", tc, s)
		}
	}
}

// An ask succeeds after Retry, and at no µs before. A sliding window gives a time at the end of the next window if the leases of
// that leave no room in it.
func TestRetryBesideLeasesOfTheNextWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, period := rapid.Int64Range(1, 9).Draw(t, "rate"), rapid.Int64Range(1, 40).Draw(t, "period")
		l := hybridlimit.FixedWindow(rate, time.Duration(period)*time.Microsecond)
		if rapid.Bool().Draw(t, "sliding") {
			l.Algorithm = hybridlimit.AlgSlidingWindow
		}
		w := algo.WindowOf(l)
		now := w.Number(start)*period + rapid.Int64Range(0, period-1).Draw(t, "offset")
		n := rapid.Int64Range(1, rate).Draw(t, "n")
		units := rapid.Int64Range(0, 2*rate)
		s := counted(w, now, units.Draw(t, "cur"), units.Draw(t, "prev"), rapid.Int64Range(0, rate).Draw(t, "next"))
		succeeds := func(at int64) bool {
			_, ans, _ := w.Apply(s, ask(n), at)
			return ans.Granted == n
		}
		_, ans, _ := w.Apply(s, ask(n), now)
		if ans.Granted == n {
			return
		}
		for at := now; at < now+ans.Retry; at++ {
			if succeeds(at) {
				t.Fatalf("%v, %+v: an ask for %d succeeds after %d µs, told %d", l, s, n, at-now, ans.Retry)
			}
		}
		if full := w.Sliding && s.Next+n > rate; full {
			if end := (s.Win+2)*period - now; ans.Retry != end {
				t.Fatalf("%v, %+v: told %d µs, want %d: the leases leave no room", l, s, ans.Retry, end)
			}
		} else if !succeeds(now + ans.Retry) {
			t.Fatalf("%v, %+v: an ask for %d fails after %d µs", l, s, n, ans.Retry)
		}
	})
}

// The estimate of a sliding window at the border is this window with the leases of the next one. No grant and no lease lifts it
// above Rate, nor above what the estimate permits at any later time, if all leases are spent as the window begins.
func TestLeasesAheadKeepTheBorderBelowRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 30).Draw(t, "rate")
		l := hybridlimit.FixedWindow(rate, time.Second)
		if rapid.Bool().Draw(t, "sliding") {
			l.Algorithm = hybridlimit.AlgSlidingWindow
		}
		w := algo.WindowOf(l)
		var s algo.State
		now := int64(start)
		for range rapid.IntRange(1, 60).Draw(t, "ops") {
			now += rapid.SampledFrom([]int64{0, 1, 30_000, 240_000, 600_000}).Draw(t, "wait")
			op := algo.Op{Ahead: rapid.Bool().Draw(t, "ahead"), Div: 2 * rapid.Int64Range(1, 3).Draw(t, "n"), Demand: rapid.SampledFrom([]int64{0, 20_000, 1e9}).Draw(t, "demand")}
			if rapid.Bool().Draw(t, "asks") {
				op.Asks = []int64{rapid.Int64Range(1, rate).Draw(t, "ask")}
			}
			s, _, _ = w.Apply(s, op, now)
			if border := s.Cur + s.Next; w.Sliding && border > rate || s.Cur > rate || s.Next > rate || w.Level(s, now) < 0 {
				t.Fatalf("%v: %+v after %+v: level %d", l, s, op, w.Level(s, now))
			}
		}
	})
}
