package algo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// floorLimits has a limit of each kind that has floors. Their burst is 100.
var floorLimits = []hybridlimit.Limit{
	hybridlimit.TokenBucket(1000, time.Second, 100), hybridlimit.LeakyQueue(1000, time.Second, 100),
	hybridlimit.FixedWindow(100, time.Second), hybridlimit.SlidingWindow(100, time.Second),
}

// TestFloor checks the units that ops with a floor of 20 of 100 take from an unused key, and
// that ops without a floor find the rest.
func TestFloor(t *testing.T) {
	for _, limit := range floorLimits {
		l := algo.LimitOf(limit)
		unit := l.Unit()
		low := func(op algo.Op) algo.Op { op.Floor = 20; return op }
		_, ans, _ := l.Apply(algo.State{}, low(ask(81)), start)
		if ans.Granted != 0 || ans.Retry != algo.Never {
			t.Errorf("%v: an ask above the burst less the floor got %+v", limit, ans)
		}
		var s algo.State
		if s, ans, _ = l.Apply(algo.State{}, low(ask(80, 1)), start); ans.Granted != 80 || ans.Level != 20*unit {
			t.Errorf("%v: asks for 80 and 1 got %+v", limit, ans)
		}
		if ans.Retry <= 0 || ans.Retry == algo.Never {
			t.Errorf("%v: the refused ask is to retry after %d µs", limit, ans.Retry)
		}
		if _, again, _ := l.Apply(s, low(ask(1)), start+ans.Retry-1); again.Granted != 0 {
			t.Errorf("%v: granted a µs before the retry", limit)
		}
		if _, again, _ := l.Apply(s, low(ask(1)), start+ans.Retry); again.Granted != 1 {
			t.Errorf("%v: refused at the retry: %+v", limit, again)
		}
		if _, most, _ := l.Apply(s, low(algo.Op{Asks: []int64{1}, MaxDelay: 1e9}), start); most.Granted != 0 {
			t.Errorf("%v: booked below the floor: %+v", limit, most)
		}
		if _, lease, _ := l.Apply(s, low(algo.Op{Div: 1, Demand: 1e9}), start); lease.Lease != 0 {
			t.Errorf("%v: leased below the floor: %+v", limit, lease)
		}
		if _, rest, _ := l.Apply(s, ask(20), start); rest.Granted != 20 {
			t.Errorf("%v: an op without a floor got %+v of the 20 units", limit, rest)
		}
		if _, owed, _ := l.Apply(s, low(owe(5)), start); owed.Level != 15*unit {
			t.Errorf("%v: owed units left %d sub-units, want 15 units: they are debited in any case", limit, owed.Level)
		}
		if _, half, _ := l.Apply(algo.State{}, algo.Op{Asks: []int64{50}, Floor: 90}, start); half.Granted != 50 {
			t.Errorf("%v: a floor of 90 counts as 50, but an ask for 50 got %+v", limit, half)
		}
	}
}

// TestHigherFloorsTakeLess checks that an op takes no more with a higher floor, from random
// states, and leaves its floor unless it owes.
func TestHigherFloorsTakeLess(t *testing.T) {
	rng := testenv.Rand(t)
	for range testenv.Runs(20_000, 1_000_000) {
		limit := floorLimits[rng.IntN(len(floorLimits))]
		l, now := algo.LimitOf(limit), start+rng.Int64N(3e6)
		s, _, _ := l.Apply(algo.State{}, algo.Op{Owed: 1 + rng.Int64N(120), Asks: []int64{1}}, now)
		s, _, _ = l.Apply(s, algo.Op{Asks: []int64{1 + rng.Int64N(50)}, Div: 1 + rng.Int64N(6), Demand: rng.Int64N(1e6)}, now+rng.Int64N(3e5))
		op := algo.Op{Div: 1 + rng.Int64N(6), Demand: rng.Int64N(1e6), Partial: rng.IntN(2) == 0, Upper: rng.IntN(2) == 0}
		for range rng.IntN(3) {
			op.Asks = append(op.Asks, 1+rng.Int64N(60))
		}
		now += rng.Int64N(6e5)
		op.Floor = rng.Int64N(51)
		_, low, _ := l.Apply(s, op, now)
		if took := low.Granted + low.Lease; took > 0 && low.Level < op.Floor*l.Unit() {
			t.Fatalf("%v: %+v took %d and left %d sub-units", limit, op, took, low.Level)
		}
		if len(op.Asks) > 1 || op.Div > 0 && len(op.Asks) > 0 {
			continue // a refused ask leaves units to later ones, and a granted one to no lease
		}
		more := op
		more.Floor += rng.Int64N(51 - op.Floor)
		if _, high, _ := l.Apply(s, more, now); high.Granted > low.Granted || len(op.Asks) == 0 && high.Lease > low.Lease {
			t.Fatalf("%v: floor %d took %+v, floor %d took %+v", limit, op.Floor, low, more.Floor, high)
		}
	}
}

// TestUpperTakesNoTurn checks that an op of a class above the largest floor neither moves nor
// clears the next poll that is free, nor gets a next poll while it has units.
func TestUpperTakesNoTurn(t *testing.T) {
	b := algo.BucketOf(hybridlimit.TokenBucket(1000, time.Second, 1000))
	rest := algo.Op{Asks: []int64{800, 1}, Floor: 200, Div: 200, Demand: 5e6}
	s, ans, _ := b.Apply(algo.State{}, rest, start)
	if ans.Granted != 800 || ans.Retry == 0 || s.Slot <= start {
		t.Fatalf("the rest was refused one unit, and got %+v and the slot %d", ans, s.Slot-start)
	}
	for _, tc := range []struct {
		asks int64
		away int64 // µs
	}{{1, 0}, {200, 100_000}} {
		t.Run(fmt.Sprint(tc.asks), func(t *testing.T) {
			next, ans, _ := b.Apply(s, algo.Op{Asks: []int64{tc.asks}, Upper: true, Div: 200, Demand: 1e3}, start)
			if ans.Granted != tc.asks || ans.Retry != tc.away || next.Slot != s.Slot {
				t.Errorf("%+v, the slot moved by %d µs, want %d granted, the next poll in %d µs, and the slot as it was", ans, next.Slot-s.Slot, tc.asks, tc.away)
			}
		})
	}
	if next, _, _ := b.Apply(s, algo.Op{Asks: []int64{1}, Div: 200, Demand: 1e3}, start); next.Slot != s.Slot {
		t.Logf("without Upper the slot moves by %d µs", next.Slot-s.Slot)
	} else {
		t.Error("without Upper the slot must change, or this test cannot fail")
	}
}
