package algo_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// step is one operation at a time, and its expected answer.
type step struct {
	at   time.Duration // since start
	op   algo.Op
	want algo.Answer // without Born; without Cap if it is the bucket's
}

func ask(n ...int64) algo.Op   { return algo.Op{Asks: n} }
func atMost(n int64) algo.Op   { return algo.Op{Asks: []int64{n}, Partial: true} }
func owe(n int64) algo.Op      { return algo.Op{Owed: n} }
func µs(d time.Duration) int64 { return int64(d / time.Microsecond) }

func TestApplySteps(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const gen = start / algo.Generation
	// 10 per second, burst 5: a unit is 100 000 sub-units, and one sub-unit is refilled per µs.
	ten := hybridlimit.TokenBucket(10, s, 5)
	// 3 per 7 s, burst 2: a unit is 7 000 000 sub-units, and three sub-units are refilled per µs.
	odd := hybridlimit.TokenBucket(3, 7*s, 2)
	day := hybridlimit.TokenBucket(1, 24*time.Hour, 1)
	fast := hybridlimit.TokenBucket(10_000_000, s, 0)
	seen := algo.View{Level: 300_000, At: start, Born: start} // after the first op of a case

	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit
		steps []step
	}{
		{"spend a burst, then the rate", ten, []step{
			{0, ask(5), algo.Answer{Granted: 5, Level: 0, Retry: µs(100 * ms)}},
			{0, ask(1), algo.Answer{Level: 0, Life: µs(500 * ms), Retry: µs(100 * ms)}},
			{99999 * time.Microsecond, ask(1), algo.Answer{Level: 99_999, Life: 400_001, Retry: 1}},
			{100 * ms, ask(1), algo.Answer{Granted: 1, Level: 0, Life: µs(400 * ms), Retry: µs(100 * ms)}},
			{10 * s, ask(6), algo.Answer{Level: 500_000, Retry: algo.Never}},
		}},
		{"a unit that is no whole number of µs", odd, []step{
			{0, ask(2), algo.Answer{Granted: 2, Level: 0, Retry: 2_333_334}},
			{2_333_333 * time.Microsecond, ask(1), algo.Answer{Level: 6_999_999, Life: 1_000_000, Retry: 1}},
			{2_333_334 * time.Microsecond, ask(1), algo.Answer{Granted: 1, Level: 2, Life: 1_000_000, Retry: 2_333_333}},
		}},
		{"asks are served as they fit", ten, []step{
			{0, ask(3, 3, 1), algo.Answer{Granted: 4, Level: 100_000, Retry: µs(200 * ms)}},
			{0, ask(4, 2), algo.Answer{Level: 100_000, Life: µs(400 * ms), Retry: µs(300 * ms)}},
		}},
		{"a partial ask takes what is there", ten, []step{
			{0, atMost(7), algo.Answer{Granted: 5, Level: 0, Retry: µs(100 * ms)}},
			{0, atMost(7), algo.Answer{Level: 0, Life: µs(500 * ms), Retry: µs(100 * ms)}},
			{250 * ms, atMost(7), algo.Answer{Granted: 2, Level: 50_000, Life: µs(250 * ms), Retry: µs(50 * ms)}},
		}},
		{"what is owed is paid before an ask, into debt, to the floor", ten, []step{
			{0, algo.Op{Owed: 3, Asks: []int64{3}}, algo.Answer{Level: 200_000, Life: µs(300 * ms), Retry: µs(100 * ms)}},
			{0, owe(4), algo.Answer{Level: -200_000, Life: µs(700 * ms), Retry: µs(300 * ms)}},
			{0, owe(40), algo.Answer{Level: -500_000, Life: µs(s), Retry: µs(600 * ms)}},
			{600 * ms, ask(1), algo.Answer{Granted: 1, Level: 0, Life: µs(400 * ms), Retry: µs(100 * ms)}},
		}},
		{"in turns a lease is free: demand times life less a standard deviation, at most its part, never beside a refusal", ten, []step{
			{0, owe(4), algo.Answer{Level: 100_000, Life: µs(400 * ms)}},
			// An ask above the burst is refused in any case. It makes no process wait.
			{0, algo.Op{Demand: 40_000, Div: 1, Asks: []int64{6}}, algo.Answer{Level: 100_000, Life: µs(400 * ms)}},
			// After a refusal, polls are given out. The level is a fifth below the scarce level of 1.25 units, so the next
			// poll is a fifth of a unit's 100 ms away.
			{0, algo.Op{Demand: 40_000, Div: 1, Asks: []int64{2}}, algo.Answer{Level: 100_000, Life: µs(400 * ms), Retry: 19_999}},
			// 5 a second for 0.4 s: 2 − √2 is below one. The next polls continue behind the one that lies ahead.
			{0, algo.Op{Demand: 5_000, Div: 1}, algo.Answer{Level: 100_000, Life: µs(400 * ms), Retry: 39_998}},
			// 40 a second for 0.4 s: 16 − √16 = 12. But one unit is left.
			{0, algo.Op{Demand: 40_000, Div: 1}, algo.Answer{Lease: 1, Life: µs(400 * ms), Retry: 139_998}},
			// When the last poll has passed, no process has to wait again.
			{140 * ms, algo.Op{Demand: 5_000, Div: 1}, algo.Answer{Level: 140_000, Life: µs(360 * ms)}},
		}},
		{"near empty, a lease is small, and one unit is no lease", ten, []step{
			{0, owe(3), algo.Answer{Level: 200_000, Life: µs(300 * ms)}},
			// The process may have one unit at once.
			{0, algo.Op{Demand: 40_000, Div: 4}, algo.Answer{Level: 200_000, Life: µs(300 * ms)}},
			// Not near empty: both. The process has left less than a unit, so turns begin.
			{0, algo.Op{Demand: 40_000, Div: 1}, algo.Answer{Lease: 2, Life: µs(s), Retry: µs(100 * ms), Cap: 300_000, Gen: gen}},
		}},
		{"unspent units go back through the ledger", ten, []step{
			{0, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Lease: 2, Level: 300_000, Life: µs(s), Cap: 300_000, Gen: gen}},
			{0, algo.Op{Gen: gen, Had: 3, Back: 1, View: seen}, algo.Answer{Level: 300_000, Cap: 300_000, Refused: true}},          // more than it holds
			{0, algo.Op{Gen: gen, Had: 2, Keep: 1, Back: 2, View: seen}, algo.Answer{Level: 300_000, Cap: 300_000, Refused: true}}, // more than was leased
			{0, algo.Op{Gen: gen, Had: 2, Back: 1}, algo.Answer{Level: 300_000, Cap: 300_000, Refused: true}},                      // of another state
			{0, algo.Op{Gen: gen, Had: 2, Back: 1, View: seen, Broken: true}, algo.Answer{Level: 300_000, Cap: 300_000, Refused: true}},
			{0, algo.Op{Gen: gen, Had: 2, Back: 1, View: seen, Lost: true}, algo.Answer{Level: 300_000, Cap: 300_000, Refused: true}},
			{0, algo.Op{Back: 1, View: seen}, algo.Answer{Level: 300_000, Cap: 300_000, Refused: true}}, // not in the ledger
			// One is kept, one comes back.
			{0, algo.Op{Gen: gen, Had: 2, Keep: 1, Back: 1, View: seen}, algo.Answer{Level: 400_000, Life: µs(s), Cap: 400_000, Gen: gen}},
			// The bucket is full with the last one, and an ask of the same op can have all.
			{0, algo.Op{Gen: gen, Had: 1, Back: 1, View: seen, Asks: []int64{5}}, algo.Answer{Granted: 5, Retry: µs(100 * ms)}},
			// The second time, the ledger has forgotten it.
			{0, algo.Op{Gen: gen, Had: 1, Back: 1, View: seen}, algo.Answer{Life: µs(500 * ms), Retry: µs(100 * ms), Refused: true}},
		}},
		{"another count lowers the level to what it leaves, less the ledger, and never raises it", ten, []step{
			{0, algo.Op{Used: 1}, algo.Answer{Level: 400_000, Life: µs(100 * ms)}},
			{0, algo.Op{Used: 1}, algo.Answer{Level: 400_000, Life: µs(100 * ms)}}, // twice is once
			{50 * ms, algo.Op{Used: 1}, algo.Answer{Level: 450_000, Life: µs(50 * ms)}},
			{50 * ms, algo.Op{Used: 1, Owed: 1}, algo.Answer{Level: 350_000, Life: µs(150 * ms)}}, // more are used already
			{50 * ms, algo.Op{Refund: 1}, algo.Answer{Level: 450_000, Life: µs(50 * ms)}},
			{50 * ms, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Lease: 2, Level: 250_000, Life: µs(s), Cap: 300_000, Gen: gen}},
			// Two are left. Both are leased. The ask of the same op comes afterwards.
			{50 * ms, algo.Op{Used: 3, UsedBy: start + µs(50*ms), Asks: []int64{1}}, algo.Answer{Level: 50_000, Life: µs(250 * ms), Cap: 300_000, Retry: µs(50 * ms)}},
			{100 * ms, algo.Op{Used: 5, UsedBy: start + µs(99*ms)}, algo.Answer{Level: 100_000, Life: µs(200 * ms), Cap: 300_000}}, // too old
			{100 * ms, algo.Op{Used: 4}, algo.Answer{Level: -100_000, Life: µs(400 * ms), Cap: 300_000, Retry: µs(200 * ms)}},
			{100 * ms, algo.Op{Used: 1 << 52}, algo.Answer{Level: -500_000, Life: µs(800 * ms), Cap: 300_000, Retry: µs(600 * ms)}},
		}},
		{"units that go back pay a debt", ten, []step{
			{0, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Lease: 2, Level: 300_000, Life: µs(s), Cap: 300_000, Gen: gen}},
			{0, owe(4), algo.Answer{Level: -100_000, Life: µs(400 * ms), Cap: 300_000, Retry: µs(200 * ms)}},
			{0, algo.Op{Gen: gen, Had: 2, Back: 2, View: seen}, algo.Answer{Level: 100_000, Life: µs(400 * ms)}},
		}},
		{"but none while a booking lies ahead", ten, []step{
			{0, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Lease: 2, Level: 300_000, Life: µs(s), Cap: 300_000, Gen: gen}},
			{0, algo.Op{Asks: []int64{4}, MaxDelay: µs(s)}, algo.Answer{Granted: 4, Level: -100_000, Delay: µs(100 * ms), Retry: µs(200 * ms), Cap: 300_000}},
			{99 * ms, algo.Op{Gen: gen, Had: 2, Back: 1, Keep: 1, View: seen}, algo.Answer{Level: 98_000, Life: µs(s), Cap: 400_000, Gen: gen, Retry: 2000}},
			{100 * ms, owe(3), algo.Answer{Level: -201_000, Life: µs(601 * ms), Cap: 400_000, Retry: µs(301 * ms)}},
			{100 * ms, algo.Op{Gen: gen, Had: 1, Back: 1, View: seen}, algo.Answer{Level: -101_000, Life: µs(601 * ms), Retry: µs(201 * ms)}},
		}},
		{"the ledger forgets units after the next generation", ten, []step{
			{0, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Lease: 2, Level: 300_000, Life: µs(s), Cap: 300_000, Gen: gen}},
			{2 * s, algo.Op{Gen: gen, Had: 2, Back: 2, View: seen}, algo.Answer{Level: 300_000, Life: µs(200 * ms), Refused: true}},
		}},
		{"a process alone on a full bucket: the ledger, up to half of it", ten, []step{
			{0, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Lease: 2, Level: 300_000, Life: µs(s), Cap: 300_000, Gen: gen}},
			{0, owe(1), algo.Answer{Level: 200_000, Life: µs(100 * ms), Cap: 300_000}},
			// The ledger ends the refill at 300 000, so a free lease has no room there either.
			{500 * ms, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Level: 300_000, Cap: 300_000}},
			// Forgotten after the second generation.
			{1999 * ms, algo.Op{}, algo.Answer{Level: 300_000, Cap: 300_000}},
			{2 * s, algo.Op{}, algo.Answer{Level: 300_000, Life: µs(200 * ms)}},
		}},
		{"the ledger has no room for a lease of two units", hybridlimit.TokenBucket(10, s, 3), []step{
			{0, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Level: 300_000}},
			{0, owe(1), algo.Answer{Level: 200_000, Life: µs(100 * ms)}},
			{80001 * time.Microsecond, algo.Op{Demand: 1e9, Div: 1}, algo.Answer{Level: 280_001}},
		}},
		{"a clock that steps back freezes for up to a second", ten, []step{
			{0, ask(5), algo.Answer{Granted: 5, Retry: µs(100 * ms)}},
			{-s, ask(1), algo.Answer{Life: µs(500 * ms), Retry: µs(1100 * ms)}},
			{100 * ms, ask(1), algo.Answer{Granted: 1, Life: µs(400 * ms), Retry: µs(100 * ms)}},
		}},
		{"and takes the state along when it steps further", ten, []step{
			{0, ask(5), algo.Answer{Granted: 5, Retry: µs(100 * ms)}},
			{-time.Hour, owe(1), algo.Answer{Level: -100_000, Life: µs(600 * ms), Retry: µs(200 * ms)}},
			{-time.Hour + 200*ms, ask(1), algo.Answer{Granted: 1, Life: µs(400 * ms), Retry: µs(100 * ms)}},
		}},
		{"one a day", day, []step{
			{0, ask(1), algo.Answer{Granted: 1, Retry: µs(24 * time.Hour)}},
			{24*time.Hour - time.Microsecond, ask(1), algo.Answer{Level: 86_399_999_999, Retry: 1}},
			{24 * time.Hour, ask(1), algo.Answer{Granted: 1, Retry: µs(24 * time.Hour)}},
		}},
		{"ten million a second", fast, []step{
			{0, ask(10_000_000), algo.Answer{Granted: 10_000_000, Retry: 1}},
			{time.Microsecond, ask(10), algo.Answer{Granted: 10, Life: 999_999, Retry: 1}},
			{time.Microsecond, ask(1, 11), algo.Answer{Life: 1_000_000, Retry: 1}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, st := algo.BucketOf(tc.limit), algo.State{}
			for i, step := range tc.steps {
				var got algo.Answer
				st, got, _ = b.Apply(st, step.op, start+µs(step.at))
				got.Born = 0
				if step.want.Cap == 0 {
					step.want.Cap = b.Cap
				}
				if got != step.want {
					t.Errorf("step %d: %+v gave %+v, want %+v", i, step.op, got, step.want)
				}
			}
		})
	}
}

func TestDeniedAndPeekedWriteNothing(t *testing.T) {
	b := algo.BucketOf(hybridlimit.PerSecond(5))
	for name, op := range map[string]algo.Op{
		"peek": {}, "above the burst": ask(6), "no cost": ask(0), "negative cost": ask(-3), "negative owed": owe(-3),
	} {
		if s, ans, dirty := b.Apply(algo.State{}, op, start); dirty || ans.Born != 0 || ans.Granted != 0 || s.Since != 0 {
			t.Errorf("%s: %+v, %+v, dirty %v", name, s, ans, dirty)
		}
	}
}

// TestViewOfALostState merges the view of a state that Redis has lost. The history with
// more usage holds, and a second merge changes nothing.
func TestViewOfALostState(t *testing.T) {
	const s = time.Second
	b := algo.BucketOf(hybridlimit.TokenBucket(10, s, 5)) // 100 000 sub-units per unit, one refilled per µs
	seen := algo.View{Level: 100_000, At: start, Born: start - 77}
	reborn := algo.State{Unit: b.Unit, Refill: b.Refill, Level: 300_000, Last: start, Born: start, Since: 2}
	for _, tc := range []struct {
		name  string
		state algo.State
		view  algo.View
		at    time.Duration
		want  int64
	}{
		{"nothing there yet", algo.State{}, seen, 0, 100_000},
		{"refill since the view", algo.State{}, seen, s / 10, 200_000},
		{"debits since the rebirth count as well", reborn, seen, 0, -100_000},
		{"down to a burst of debt", reborn, algo.View{Level: -500_000, At: start, Born: 1}, 0, -500_000},
		{"an old view says nothing", reborn, seen, 10 * s, 500_000},
		{"a view of this life says nothing", reborn, algo.View{Level: -500_000, At: start, Born: start}, 0, 300_000},
		{"no view", reborn, algo.View{}, 0, 300_000},
		{"a view from the future is not refilled", algo.State{}, algo.View{Level: 1, At: start + 10, Born: 1}, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := start + µs(tc.at)
			st, ans, _ := b.Apply(tc.state, algo.Op{View: tc.view}, now)
			if ans.Level != tc.want {
				t.Errorf("level %d, want %d", ans.Level, tc.want)
			}
			if again, ans, _ := b.Apply(st, algo.Op{View: tc.view}, now); again != st || ans.Level != tc.want {
				t.Errorf("merged again: %+v, was %+v", again, st)
			}
		})
	}
}

func TestApplyLeavesItsArgumentsAlone(t *testing.T) {
	b := algo.BucketOf(hybridlimit.PerSecond(5))
	asks := []int64{3, 3, 1}
	b.Apply(algo.State{}, algo.Op{Asks: asks, Partial: true}, start)
	if !slices.Equal(asks, []int64{3, 3, 1}) {
		t.Errorf("asks are now %v", asks)
	}
}

// TestOnlyAsks sets each field of an op in turn: only those that change nothing but the
// asks leave it an op that only asks.
func TestOnlyAsks(t *testing.T) {
	asks := algo.Op{Asks: []int64{2, 3}}
	if !asks.OnlyAsks() || asks.Asked() != 5 {
		t.Errorf("%+v: %v, %d", asks, asks.OnlyAsks(), asks.Asked())
	}
	if new(algo.Op).OnlyAsks() {
		t.Error("an op without asks only asks")
	}
	harmless := map[string]bool{
		"Asks": true, "Partial": true, "Since": true, "ID": true,
		"Lost": true, "Broken": true, // of View and Gen
		"Win": true, "RefundAt": true, // of Owed and Refund
		"Floor": true, "Upper": true, "Queued": true, "MaxLife": true, // of the asks, and of a next poll
	}
	for i := range reflect.TypeFor[algo.Op]().NumField() {
		op := asks
		name, f := reflect.TypeFor[algo.Op]().Field(i).Name, reflect.ValueOf(&op).Elem().Field(i)
		switch f.Kind() {
		case reflect.Int64:
			f.SetInt(1)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("x")
		case reflect.Struct:
			f.Field(0).SetInt(1)
		}
		if got := op.OnlyAsks(); got != harmless[name] {
			t.Errorf("with %s: %v", name, got)
		}
		if got := op.AsksByView(); got != (harmless[name] || name == "View") {
			t.Errorf("with %s, by a view: %v", name, got)
		}
	}
	if op := (algo.Op{Asks: []int64{1}, View: algo.View{Born: 1}, Lost: true}); op.AsksByView() {
		t.Error("an op that tells of a loss only asks")
	}
}
