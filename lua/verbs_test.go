package lua_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

var queued = hybridlimit.LeakyQueue(10, time.Second, 5) // one every 100 ms, five may wait

var everyKind = []hybridlimit.Limit{
	ten, hybridlimit.LeakyBucket(10, time.Second, 5), queued, hybridlimit.FixedWindow(5, 10*time.Second),
	hybridlimit.SlidingWindow(5, 10*time.Second), hybridlimit.SlidingLog(5, 10*time.Second),
}

// A queue answers with the delay until the granted units are served, and with the time for
// which it stays full.
func TestQueueDelays(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			at, n, granted, delay, retry int64
		}{
			{0, 1, 1, 0, 0},
			{0, 1, 1, 100_000, 0},
			{30_000, 2, 2, 170_000, 0},
			{30_000, 2, 0, 0, 70_000}, // the queue holds four units, less 30 ms of service
			{30_000, 1, 1, 370_000, 70_000},
			{100_000, 1, 1, 400_000, 100_000},
			{600_000, 5, 5, 0, 100_000},
			{600_000, 6, 0, 0, algo.Never},
			{-400_000, 1, 0, 0, 1_100_000}, // frozen, because the clock stepped back by a second
		} {
			a := st.one(t, "k", queued, algo.Op{Asks: []int64{tc.n}}, start+tc.at)
			if a.Granted != tc.granted || a.Delay != tc.delay || a.Retry != tc.retry || a.Lease != 0 || a.Life != 0 {
				t.Errorf("%+v: %+v", tc, a)
			}
		}
		st.del(t, "k")
		// With several asks, the delay is that of the first.
		st.one(t, "k", queued, algo.Op{Owed: 1}, start)
		a := st.one(t, "k", queued, algo.Op{Asks: []int64{2, 1, 9}}, start)
		if a.Granted != 3 || a.Delay != 100_000 || a.Lease != 0 || a.Retry != algo.Never {
			t.Errorf("%+v", a)
		}
	})
}

// A lease of a queue is the slots behind the granted units. It is a part of the free slots,
// and at most the demand until its first slot is served.
func TestSlots(t *testing.T) {
	long := hybridlimit.LeakyQueue(100, time.Second, 400) // one each 10 ms
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			name              string
			depth             int64
			op                algo.Op
			granted, lease    int64
			delay, levelUnits int64
			turn              bool
		}{
			{name: "nobody queues", op: algo.Op{Asks: []int64{1}, Demand: 50_000, Div: 2}, granted: 1, levelUnits: 399},
			{name: "what is used in 200 ms", depth: 20, op: algo.Op{Demand: 50_000, Div: 2}, lease: 6, delay: 200_000, levelUnits: 374},
			{name: "behind what is granted", depth: 19, op: algo.Op{Asks: []int64{1}, Demand: 50_000, Div: 2}, granted: 1, lease: 6, delay: 190_000, levelUnits: 374},
			{name: "what is used in a second", depth: 200, op: algo.Op{Demand: 50_000, Div: 2}, lease: 42, delay: 2_000_000, levelUnits: 158},
			{name: "an eighth of the queue", depth: 300, op: algo.Op{Demand: 1e9, Div: 4}, lease: 50, delay: 3_000_000, levelUnits: 50},
			{name: "a part, to a full queue", depth: 390, op: algo.Op{Demand: 10_000, Div: 40}, lease: 5, delay: 3_900_000, levelUnits: 5, turn: true},
			{name: "nothing where an ask was refused", depth: 300, op: algo.Op{Asks: []int64{101}, Demand: 1e9, Div: 4}, levelUnits: 100},
			{name: "nothing without demand", depth: 300, op: algo.Op{Div: 4}, levelUnits: 100},
			{name: "nothing beside a patient ask", depth: 300, op: algo.Op{Asks: []int64{1}, MaxDelay: 1 << 40, Demand: 1e9, Div: 4}, granted: 1, delay: 3_000_000, levelUnits: 99},
		} {
			st.del(t, "k")
			if tc.depth > 0 {
				st.one(t, "k", long, algo.Op{Owed: tc.depth}, start)
			}
			a := st.one(t, "k", long, tc.op, start)
			if a.Granted != tc.granted || a.Lease != tc.lease || a.Delay != tc.delay || a.Level != tc.levelUnits*unitOf(long) ||
				a.Life != 0 || a.Gen != 0 || tc.turn && a.Retry == 0 {
				t.Errorf("%s: %+v", tc.name, a)
			}
		}
	})
}

// A new limit keeps the waiting units of a queue, so that no new call starts before a call
// that already has its time. Regression: it kept the free room, as a bucket keeps its
// level. A longer queue then began with slots that no call had, and a shorter one forgot
// waiting calls.
func TestQueueKeepsWhatStandsInIt(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			limit          hybridlimit.Limit
			granted, delay int64
		}{
			{hybridlimit.LeakyQueue(10, time.Second, 9), 1, 400_000},
			{hybridlimit.LeakyQueue(100, time.Second, 5), 1, 40_000},
			{hybridlimit.LeakyQueue(3, 700*time.Millisecond, 20), 1, 933_334},
			{hybridlimit.LeakyQueue(10, time.Second, 4), 0, 0},
			{hybridlimit.LeakyQueue(10, time.Second, 3), 0, 0},
		} {
			for _, batched := range []bool{false, true} { // the state is read again, or not
				st.del(t, "k")
				take, come := algo.Op{Asks: []int64{4}}, algo.Op{Asks: []int64{1}}
				var a wire.Answer
				if batched {
					a = st.batch(t, wire.Envelope{}, []wire.Op{{Key: "k", Limit: queued, Op: take}, {Key: "k", Limit: tc.limit, Op: come}}, start).Answers[1]
				} else {
					st.one(t, "k", queued, take, start)
					a = st.one(t, "k", tc.limit, come, start)
				}
				if a.Granted != tc.granted || a.Delay != tc.delay {
					t.Errorf("%v, batched %v: %+v", tc.limit, batched, a)
				}
			}
		}
	})
}

// An ask with MaxDelay takes units that come within its delay, at most a burst ahead.
func TestMaxDelay(t *testing.T) {
	const ms = 1000
	onEachStore(t, func(t *testing.T, st store) {
		for _, tc := range []struct {
			name                              string
			limit                             hybridlimit.Limit
			used, n, patience                 int64
			partial                           bool
			granted, delay, retry, levelUnits int64
		}{
			{"at once", ten, 2, 3, 1, false, 3, 0, 100 * ms, 0},
			{"later", ten, 4, 3, 200 * ms, false, 3, 200 * ms, 300 * ms, -2},
			{"a µs too late", ten, 4, 3, 200*ms - 1, false, 0, 0, 1, 1},
			{"as long as it takes", ten, 5, 5, 1 << 52, false, 5, 500 * ms, 600 * ms, -5},
			{"no more than a burst ahead", ten, 6, 5, 1 << 52, false, 0, 0, 100 * ms, -1},
			{"never above the burst", ten, 0, 6, 1 << 52, false, 0, 0, algo.Never, 5},
			{"in part what is there", ten, 4, 3, 1 << 52, true, 1, 0, 100 * ms, 0},
			{"a queue with room, but not in time", queued, 3, 1, 299 * ms, false, 0, 0, 1 * ms, 2},
			{"a queue with room", queued, 3, 1, 300 * ms, false, 1, 300 * ms, 0, 1},
			{"a queue is no longer for the patient", queued, 4, 2, 1 << 52, false, 0, 0, 100 * ms, 1},
			{"a full queue", queued, 5, 2, 1 << 52, false, 0, 0, 200 * ms, 0},
			{"a queue in debt", queued, 9, 2, 1 << 52, false, 0, 0, 600 * ms, -4},
		} {
			st.del(t, "k")
			if tc.used > 0 {
				st.one(t, "k", tc.limit, algo.Op{Owed: tc.used}, start)
			}
			op := algo.Op{Asks: []int64{tc.n}, MaxDelay: tc.patience, Partial: tc.partial, Demand: 1e9, Div: 1}
			a := st.one(t, "k", tc.limit, op, start)
			if a.Granted != tc.granted || a.Delay != tc.delay || a.Retry != tc.retry || a.Level != tc.levelUnits*100_000 || a.Lease != 0 || a.Life != 0 {
				t.Errorf("%s: %+v", tc.name, a)
			}
		}
	})
}

// The answer to a seen batch has the rest of its delay.
func TestDelayIsReplayed(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, limit := range []hybridlimit.Limit{ten, queued} {
			st.del(t, "k", "env")
			st.one(t, "k", limit, algo.Op{Owed: 3}, start)
			patient := algo.Op{Asks: []int64{2}, MaxDelay: 1 << 40}
			if limit != queued {
				patient.Asks[0] = 4
			}
			ops := []wire.Op{{Key: "k", Limit: limit, Op: patient}}
			first := st.batch(t, envelope(1), ops, start).Answers[0]
			for _, at := range []int64{0, 30_000, 30_001, first.Delay, first.Delay + 5} {
				r := st.batch(t, envelope(1), ops, start+at)
				if a := r.Answers[0]; !r.Seen || a.Granted != patient.Asks[0] || a.Delay != max(0, first.Delay-at) || a.Life != 0 {
					t.Errorf("%v after %d µs: %+v", limit, at, a)
				}
			}
		}
	})
}

// Refunded units are available again. The level never exceeds full, and Since goes down
// with the refund.
func TestRefund(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, limit := range everyKind {
			unit := unitOf(limit)
			st.del(t, "k")
			if a := st.one(t, "k", limit, algo.Op{Refund: 3}, start); a.Level != 5*unit || a.Born != 0 || st.dump(t) != "" {
				t.Errorf("%v: a refund to an unused key: %+v left %q", limit, a, st.dump(t))
			}
			st.one(t, "k", limit, algo.Op{Owed: 7}, start)
			for i, want := range []int64{0, 2, 4, 5, 5} {
				a := st.one(t, "k", limit, algo.Op{Refund: 2}, start)
				if a.Level != want*unit {
					t.Errorf("%v: refund %d: %+v, want %d units", limit, i, a, want)
				}
				if limit.Algorithm == hybridlimit.AlgSlidingLog {
					continue
				}
				if s, _ := wire.DecodeState(st.get(t, "k")); s.Since != max(0, 7-2*int64(i+1)) {
					t.Errorf("%v: since %d", limit, s.Since)
				}
			}
			// With a debit in one op: the debit comes first.
			st.del(t, "k")
			if a := st.one(t, "k", limit, algo.Op{Owed: 3, Refund: 2}, start); a.Level != 4*unit {
				t.Errorf("%v: both: %+v", limit, a)
			}
		}
	})
}

// A reset forgets usage and debt. It ignores older views for as long as one could lower the
// level. It merges later views.
func TestReset(t *testing.T) {
	onEachStore(t, func(t *testing.T, st store) {
		for _, limit := range everyKind {
			unit := unitOf(limit)
			st.del(t, "k")
			before := st.one(t, "k", limit, algo.Op{Owed: 10}, start)
			a := st.one(t, "k", limit, algo.Op{Reset: true}, start+10)
			if a.Level != 5*unit || a.Granted != 0 {
				t.Errorf("%v: %+v", limit, a)
			}
			if limit.Algorithm == hybridlimit.AlgSlidingLog {
				continue // it has no views
			}
			for _, view := range []wire.View{
				{Level: before.Level, At: start, Born: before.Born},
				{Level: before.Level, At: start + 10, Born: before.Born},
				{Level: before.Level, At: start, Born: 1},
				{Level: before.Level, At: start + 10, Born: 1},
			} {
				if a := st.one(t, "k", limit, algo.Op{View: view, Lost: true}, start+11); a.Level != 5*unit {
					t.Errorf("%v: the view %+v from before the reset was merged: %+v", limit, view, a)
				}
			}
			if a := st.one(t, "k", limit, algo.Op{View: wire.View{Level: before.Level, At: start + 11, Born: 1}}, start+11); a.Level != before.Level {
				t.Errorf("%v: a view from after the reset was not merged: %+v", limit, a)
			}
			// With units in the same op: the reset comes first.
			if a := st.one(t, "k", limit, algo.Op{Reset: true, Owed: 1, Asks: []int64{2}}, start+12); a.Granted != 2 || a.Level != 2*unit {
				t.Errorf("%v: with units: %+v", limit, a)
			}
		}
		// The TTL is twice the time to full, and two seconds. After that, a view in full
		// debt from just before the reset no longer lowers the level.
		st.del(t, "k")
		st.one(t, "k", ten, algo.Op{Reset: true}, 0)
		if got := st.ttl(t, "k"); got > 3*time.Second || got < 2900*time.Millisecond {
			t.Errorf("TTL = %v, want 3 s", got)
		}
	})
}
