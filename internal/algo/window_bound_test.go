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
