package algo_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// drawStep draws the µs between two operations, from 0 to two full refills.
func drawStep(t *rapid.T, b algo.Bucket) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, 3),
		rapid.Int64Range(0, 2_000_000),
		rapid.Int64Range(0, 2*b.WaitFull(0)+1),
	).Draw(t, "step")
}

// drawCost draws units, up to the burst and sometimes above.
func drawCost(t *rapid.T, burst int64, label string) int64 {
	return rapid.OneOf(
		rapid.Int64Range(1, min(burst, 3)),
		rapid.Int64Range(1, burst),
		rapid.Int64Range(burst, burst+2),
	).Draw(t, label)
}

// The level, the grants and the retries equal those of rational arithmetic.
func TestArithmeticIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		b, burst := algo.BucketOf(limit), limit.BurstSize()
		now, s, o := int64(start), algo.State{}, newOracle(limit, start)
		for range rapid.IntRange(1, 20).Draw(t, "ops") {
			now += drawStep(t, b)
			op := algo.Op{Asks: []int64{drawCost(t, burst, "ask")}}
			if rapid.Bool().Draw(t, "owes") {
				op.Owed = drawCost(t, 2*burst, "owed")
			}
			var ans algo.Answer
			s, ans, _ = b.Apply(s, op, now)

			o.refill(now)
			o.debit(op.Owed)
			ask, want, wait := op.Asks[0], int64(0), int64(0)
			if o.ask(ask) {
				want, wait = ask, o.wait(1)
			} else if ask > burst {
				wait = algo.Never
			} else {
				wait = o.wait(ask)
			}
			if ans.Granted != want || ans.Retry != wait || units(b, ans.Level).Cmp(o.units) != 0 {
				t.Fatalf("%v at +%d µs: %+v gave %+v, want %d granted, retry %d, level %v", limit, now-start, op, ans, want, wait, o.units)
			}
			if full := b.WaitFull(s.Level); full != o.wait(burst) {
				t.Fatalf("full in %d µs, want %d", full, o.wait(burst))
			}
		}
	})
}

// The units admitted in any interval are at most Burst + rate·t. A lease counts at the
// time at which it is granted.
func TestAdmittedWithinTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		b, burst := algo.BucketOf(limit), limit.BurstSize()
		perMicro := newOracle(limit, start).perMicro()
		type event struct {
			at    int64
			units int64
		}
		var events []event
		now, s := int64(start), algo.State{}
		for range rapid.IntRange(2, 30).Draw(t, "ops") {
			now += drawStep(t, b)
			op := algo.Op{
				Asks:    []int64{drawCost(t, burst, "ask"), drawCost(t, burst, "second ask")},
				Partial: rapid.Bool().Draw(t, "partial"),
				Demand:  rapid.Int64Range(0, 1<<40).Draw(t, "demand"),
				Div:     rapid.Int64Range(0, 4).Draw(t, "div"),
			}
			var ans algo.Answer
			s, ans, _ = b.Apply(s, op, now)
			events = append(events, event{now, ans.Granted + ans.Lease})
		}
		for i := range events {
			sum := int64(0)
			for _, e := range events[i:] {
				sum += e.units
				bound := new(big.Rat).Mul(perMicro, ratio(e.at-events[i].at, 1))
				bound.Add(bound, ratio(burst, 1))
				if ratio(sum, 1).Cmp(bound) > 0 {
					t.Fatalf("%v: admitted %d units in %d µs, want at most %v", limit, sum, e.at-events[i].at, bound)
				}
			}
		}
	})
}

// Without other calls, a call is denied one µs before the retry and admitted at it.
func TestRetryIsTheFirstMicrosecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		b := algo.BucketOf(limit)
		// The state is up to a second in the future: a clock that stepped back freezes the refill.
		now := int64(start) - rapid.Int64Range(0, algo.ClockSlack).Draw(t, "step back")
		s := drawState(t, b, start)
		n := rapid.Int64Range(1, limit.BurstSize()).Draw(t, "n")
		_, ans, _ := b.Apply(s, algo.Op{Asks: []int64{n}}, now)
		if ans.Granted == n {
			return
		}
		if _, early, _ := b.Apply(s, algo.Op{Asks: []int64{n}}, now+ans.Retry-1); early.Granted != 0 {
			t.Fatalf("granted before the retry of %d µs", ans.Retry)
		}
		if _, late, _ := b.Apply(s, algo.Op{Asks: []int64{n}}, now+ans.Retry); late.Granted != n {
			t.Fatalf("denied at the retry of %d µs: %+v", ans.Retry, late)
		}
	})
}

// Several calls for parts of a cost never get more units than are there. A partial ask
// for the whole cost gets exactly the units that are there.
func TestSplittingNeverAdmitsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		b := algo.BucketOf(limit)
		s := drawState(t, b, start)
		parts := rapid.SliceOfN(rapid.Int64Range(1, max(limit.BurstSize()/3, 1)), 1, 6).Draw(t, "parts")
		sum := int64(0)
		for _, p := range parts {
			sum += p
		}
		one, whole, _ := b.Apply(s, algo.Op{Asks: []int64{sum}}, start)
		_, most, _ := b.Apply(s, algo.Op{Asks: []int64{sum}, Partial: true}, start)
		inOne, list, _ := b.Apply(s, algo.Op{Asks: parts}, start)
		split, got := s, int64(0)
		for _, p := range parts {
			var ans algo.Answer
			split, ans, _ = b.Apply(split, algo.Op{Asks: []int64{p}}, start)
			got += ans.Granted
		}
		if got > most.Granted || got < whole.Granted {
			t.Fatalf("granted %d in parts, %d with a partial ask, %d as a whole", got, most.Granted, whole.Granted)
		}
		if whole.Granted == sum && split != one {
			t.Fatalf("in parts %+v, whole %+v", split, one)
		}
		if list.Granted != got || inOne != split {
			t.Fatalf("asks in one op got %d and left %+v, asks in separate ops got %d and left %+v", list.Granted, inOne, got, split)
		}
	})
}

// A higher limit admits at least as many of the same calls of equal cost. With mixed
// costs it may admit less: an early admission can prevent a larger later one.
func TestRaisingTheLimitNeverAdmitsLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := drawLimit(t, "limit")
		high := low
		if rapid.Bool().Draw(t, "raise rate") {
			high.Rate *= rapid.Int64Range(1, 5).Draw(t, "factor")
		}
		high.Burst = rapid.Int64Range(low.Burst, max(low.Burst, edgeBurst(high.Rate, high.Period))).Draw(t, "higher burst")
		if high.Validate() != nil {
			return
		}
		bl, bh := algo.BucketOf(low), algo.BucketOf(high)
		cost := rapid.Int64Range(1, low.BurstSize()).Draw(t, "cost")
		now, sl, sh := int64(start), algo.State{}, algo.State{}
		gotLow, gotHigh := int64(0), int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "ops") {
			now += drawStep(t, bl)
			var al, ah algo.Answer
			sl, al, _ = bl.Apply(sl, algo.Op{Asks: []int64{cost}}, now)
			sh, ah, _ = bh.Apply(sh, algo.Op{Asks: []int64{cost}}, now)
			gotLow, gotHigh = gotLow+al.Granted, gotHigh+ah.Granted
			if gotHigh < gotLow {
				t.Fatalf("%v admitted %d, %v %d", low, gotLow, high, gotHigh)
			}
		}
	})
}

// Answers depend only on time differences and on the beginning of the ledger's
// generations.
func TestShiftingTimeChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		b := algo.BucketOf(limit)
		seconds := 4 * rapid.Int64Range(-start/algo.Generation/8, int64(100*365*24*time.Hour/time.Second/4)).Draw(t, "shift")
		shift := seconds * algo.Generation
		now, s, moved := int64(start), algo.State{}, algo.State{}
		for range rapid.IntRange(1, 15).Draw(t, "ops") {
			now += drawStep(t, b) - rapid.Int64Range(0, 1).Draw(t, "back")*rapid.Int64Range(0, 3_000_000).Draw(t, "step back")
			op := algo.Op{
				Owed: rapid.Int64Range(0, limit.BurstSize()).Draw(t, "owed"),
				Asks: []int64{drawCost(t, limit.BurstSize(), "ask")}, Demand: 1 << 30, Div: 2,
			}
			var a, am algo.Answer
			s, a, _ = b.Apply(s, op, now)
			moved, am, _ = b.Apply(moved, op, now+shift)
			if am.Born != 0 {
				am.Born -= shift
			}
			if am.Gen != 0 {
				am.Gen -= seconds
			}
			if a != am {
				t.Fatalf("%+v, shifted %+v", a, am)
			}
		}
	})
}
