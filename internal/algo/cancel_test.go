package algo_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// use is a number of units used at one time.
type use struct{ at, units int64 }

// worst returns the largest excess of any interval's uses over burst + rate·t, in sub-units.
func worst(b algo.Bucket, uses []use) (over int64) {
	slices.SortFunc(uses, func(a, b use) int { return int(a.at - b.at) })
	for i := range uses {
		sum := int64(0)
		for j := i; j < len(uses); j++ {
			sum += uses[j].units
			over = max(over, sum*b.Unit-b.Cap-(uses[j].at-uses[i].at)*b.Refill)
		}
	}
	return over
}

// Regression: a cancelled booking gave back all its units although later bookings
// depended on them. Nearly two bursts were then used at one instant.
func TestCancelledBookingsNeverLetTwoBurstsMeet(t *testing.T) {
	limit := hybridlimit.TokenBucket(10, time.Second, 10)
	b := algo.BucketOf(limit)
	scale := algo.ScaleOf(limit)
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		now, s := int64(start), algo.State{}
		type booking struct {
			use
			back algo.Op
		}
		var open []booking
		for range 40 {
			now += rng.Int64N(1 << rng.IntN(21))
			switch n := len(open); {
			case n > 0 && rng.IntN(3) == 0: // cancel a booking whose time has not come
				i := rng.IntN(n)
				if now <= open[i].at {
					s, _, _ = b.Apply(s, open[i].back, now)
					open = slices.Delete(open, i, i+1)
				}
			default:
				op := algo.Op{Asks: []int64{1 + rng.Int64N(10)}}
				if rng.IntN(3) > 0 {
					op.MaxDelay = algo.Never - 1
				}
				var a algo.Answer
				if s, a, _ = b.Apply(s, op, now); a.Granted > 0 {
					open = append(open, booking{use{now + a.Delay, a.Granted}, scale.Cancel(a, now)})
				}
			}
		}
		var uses []use
		for _, o := range open {
			uses = append(uses, o.use)
		}
		if over := worst(b, uses); over > b.Unit { // times are rounded up to a µs
			t.Fatalf("seed %d: %d sub-units above burst + rate·t in %v", seed, over, uses)
		}
	}
}

// Cancelled units come back, except the units on which later bookings depend.
func TestCancelGivesBackWhatNobodyBookedBehind(t *testing.T) {
	limit := hybridlimit.TokenBucket(10, time.Second, 10)
	b, scale := algo.BucketOf(limit), algo.ScaleOf(limit)
	book := func(s algo.State, n, now int64) (algo.State, algo.Op, int64) {
		s, a, _ := b.Apply(s, algo.Op{Asks: []int64{n}, MaxDelay: algo.Never - 1}, now)
		if a.Granted != n {
			t.Fatalf("booked %d of %d units at %d: %+v", a.Granted, n, now, s)
		}
		return s, scale.Cancel(a, now), a.Delay
	}
	left := func(s algo.State, now int64) int64 { return b.Load(s, now).Level / (b.Unit / 10) } // tenths of a unit
	used, _, _ := book(algo.State{}, 1, start)
	for _, tc := range []struct {
		name   string
		behind int64 // booked after it
		after  time.Duration
		want   int64 // tenths of a unit that come back
	}{
		{"the last one, at once", 0, 0, 100},
		{"the last one, when it was due", 0, 100 * time.Millisecond, 100},
		{"nine behind it, at once", 9, 0, 10},
		{"nine behind it, when it was due", 9, 100 * time.Millisecond, 10},
		{"nine behind it, half a second later", 9, 600 * time.Millisecond, 10},
		{"three behind it", 3, 0, 70},
	} {
		s, back, delay := book(used, 10, start)
		if delay != 100_000 {
			t.Fatalf("delay %d", delay)
		}
		if tc.behind > 0 {
			s, _, _ = book(s, tc.behind, start)
		}
		now := start + tc.after.Microseconds()
		before := left(s, now)
		s, _, _ = b.Apply(s, back, now)
		if got := left(s, now) - before; got != tc.want {
			t.Errorf("%s: %d tenths of a unit came back, want %d", tc.name, got, tc.want)
		}
	}
}
