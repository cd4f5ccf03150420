package algo_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// trail is a list of admissions with their times.
type trail []struct{ at, units int64 }

// last returns the units admitted in the period that ends now.
func (t trail) last(now, period int64) (sum int64) {
	for _, e := range t {
		if now-e.at < period {
			sum += e.units
		}
	}
	return sum
}

// TestSlidingWindowIsBelowTwiceItsRate checks the sliding window's bound in any trailing
// period: Rate·(1 + f), where f is the part of the window that has passed. docs/windows.md
// derives it. The random schedules favour the ends of windows. The test also checks the
// bounds of the fixed window and of the log.
func TestSlidingWindowIsBelowTwiceItsRate(t *testing.T) {
	const period = 1000 // µs
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 20).Draw(t, "rate")
		steps := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, period/rate+1), rapid.Int64Range(0, 2*period))
		cost := rapid.OneOf(rapid.Just(rate), rapid.Just(int64(1)), rapid.Int64Range(1, rate))
		for _, tc := range []struct {
			limit hybridlimit.Limit
			bound int64
		}{
			{hybridlimit.FixedWindow(rate, period*time.Microsecond), 2 * rate},
			{hybridlimit.SlidingWindow(rate, period*time.Microsecond), 2*rate - 1},
			{hybridlimit.SlidingLog(rate, period*time.Microsecond), rate},
		} {
			var s algo.State
			var log []algo.Entry
			var got trail
			now := start - start%period + rapid.SampledFrom([]int64{0, period - 1, period - 5}).Draw(t, "phase")
			for range rapid.IntRange(2, 60).Draw(t, "calls") {
				op := algo.Op{Asks: []int64{cost.Draw(t, "cost")}, Partial: rapid.Bool().Draw(t, "partial")}
				var ans algo.Answer
				if tc.limit.Algorithm == hybridlimit.AlgSlidingLog {
					log, ans, _ = algo.LogOf(tc.limit).Apply(log, op, now)
				} else {
					s, ans, _ = algo.WindowOf(tc.limit).Apply(s, op, now)
				}
				got = append(got, struct{ at, units int64 }{now, ans.Granted})
				sum, bound := got.last(now, period), tc.bound
				if tc.limit.Algorithm == hybridlimit.AlgSlidingWindow && ans.Granted > 0 {
					bound = min(bound, rate+rate*(now%period)/period)
				}
				if sum > bound {
					t.Fatalf("%v: admitted %d units in a period, want at most %d: %v", tc.limit, sum, bound, got)
				}
				now += steps.Draw(t, "step")
			}
		}
	})
}

// The bound is reached: by Rate units at the last µs of a window and then by all units
// that become free.
func TestSlidingWindowReachesTwiceItsRate(t *testing.T) {
	const period int64 = 1_000_000
	for _, rate := range []int64{1, 2, 10, 1000} {
		w := algo.WindowOf(hybridlimit.SlidingWindow(rate, time.Second))
		var s algo.State
		now := start - start%period + period - 1
		s, ans, _ := w.Apply(s, algo.Op{Asks: []int64{rate}}, now)
		sum := ans.Granted
		for i := int64(1); i < period; i += max(1, period/rate/50) {
			s, ans, _ = w.Apply(s, algo.Op{Asks: []int64{rate}, Partial: true}, now+i)
			sum += ans.Granted
		}
		if sum != 2*rate-1 {
			t.Errorf("%d a second: admitted %d in a trailing second, want 2·Rate − 1", rate, sum)
		}
	}
}

// TestObserveAWindow lowers windows to what another count leaves. It counts in this window, up to the Rate, and is no
// debt of the next one.
func TestObserveAWindow(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(10, time.Second), hybridlimit.SlidingWindow(10, time.Second)} {
		w := algo.WindowOf(limit)
		var s algo.State
		now := int64(start)
		for i, step := range []struct {
			after int64
			op    algo.Op
			left  int64 // whole units
			slide int64 // of a sliding window
		}{
			{0, algo.Op{Asks: []int64{3}}, 7, 7},
			{0, algo.Op{Used: 2}, 7, 7},
			{0, algo.Op{Used: 6}, 4, 4},
			{0, algo.Op{Used: 6}, 4, 4},
			{0, algo.Op{Used: 8, UsedBy: start - 1}, 4, 4},
			{0, algo.Op{Used: 8, UsedBy: start, Asks: []int64{1}}, 1, 1},
			{0, algo.Op{Refund: 1}, 2, 2},
			{0, algo.Op{Used: 1 << 52}, 0, 0},
			{w.Period, algo.Op{}, 10, 0},
			{w.Period / 2, algo.Op{Used: 7}, 3, 3},
			{w.Period, algo.Op{}, 10, 9},
		} {
			now += step.after
			var ans algo.Answer
			s, ans, _ = w.Apply(s, step.op, now)
			want := step.left
			if w.Sliding {
				want = step.slide
			}
			if got := ans.Level / w.Unit; got != want {
				t.Errorf("%v, step %d: %d units left, want %d", limit, i, got, want)
			}
		}
	}
}
