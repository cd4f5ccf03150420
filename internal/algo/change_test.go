package algo_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Regression: the time before the change was refilled at the new rate.
func TestANewLimitRefillsNothingForThePast(t *testing.T) {
	const second = int64(1_000_000)
	slow, fast := hybridlimit.PerHour(100), hybridlimit.TokenBucket(1000, time.Second, 100)
	for _, tc := range []struct {
		name     string
		from, to hybridlimit.Limit
		since    int64 // µs for which the new limit has been in force; 0: not given
		after    int64 // µs since all units were used
		want     int64 // units
	}{
		{"faster, from now on", slow, fast, 1, 2 * second, 0},
		{"faster, for 30 ms", slow, fast, 30_000, 2 * second, 30},
		{"faster, for longer than that", slow, fast, 3 * second, 2 * second, 100},
		{"faster, for long", slow, fast, 0, 2 * second, 100},
		{"slower, from now on: what came back stays", fast, slow, 1, 50_001, 50},
		{"slower, for long", fast, slow, 0, 50_000, 0},
		{"another unit, the same rate", hybridlimit.TokenBucket(10, time.Second, 100), hybridlimit.TokenBucket(20, 2*time.Second, 100), 1, 5 * second, 50},
		{"a rate that no µs divides", hybridlimit.TokenBucket(3, 7*time.Second, 100), fast, 1, 14 * second, 6},
	} {
		from, to := algo.BucketOf(tc.from), algo.BucketOf(tc.to)
		s, a, _ := from.Apply(algo.State{}, algo.Op{Asks: []int64{from.Cap / from.Unit}}, start)
		if a.Granted != tc.from.BurstSize() {
			t.Fatalf("%s: %+v", tc.name, a)
		}
		now := start + tc.after
		_, a, _ = to.Apply(s, algo.Op{Since: tc.since}, now)
		if got := to.Units(a.Level); got != tc.want {
			t.Errorf("%s: %d units, want %d", tc.name, got, tc.want)
		}
	}
}

// The new rate holds from the first ask under the new limit, even if that ask is refused.
func TestARefusedAskBeginsTheNewRate(t *testing.T) {
	slow, fast := algo.BucketOf(hybridlimit.PerHour(100)), algo.BucketOf(hybridlimit.TokenBucket(1000, time.Second, 100))
	s, _, _ := slow.Apply(algo.State{}, algo.Op{Asks: []int64{100}}, start)
	s, a, dirty := fast.Apply(s, algo.Op{Asks: []int64{1}, Since: 1}, start+2_000_000)
	if a.Granted != 0 || !dirty {
		t.Fatalf("%+v, %t", a, dirty)
	}
	if _, a, _ = fast.Apply(s, algo.Op{Asks: []int64{10}, Since: 1}, start+2_010_000); a.Granted != 10 {
		t.Errorf("%+v", a)
	}
	// A read-only op changes nothing.
	s, _, _ = slow.Apply(algo.State{}, algo.Op{Asks: []int64{100}}, start)
	if _, _, dirty := fast.Apply(s, algo.Op{Since: 1}, start+2_000_000); dirty {
		t.Error("a peek wrote")
	}
}

// A queue keeps its content. The time before the change drains it at the old rate.
func TestANewLimitOfAQueueServesThePastAtTheOldRate(t *testing.T) {
	slow, fast := algo.BucketOf(hybridlimit.LeakyQueue(1, time.Second, 10)), algo.BucketOf(hybridlimit.LeakyQueue(10, time.Second, 10))
	s, _, _ := slow.Apply(algo.State{}, algo.Op{Asks: []int64{8}}, start)
	_, a, _ := fast.Apply(s, algo.Op{Asks: []int64{1}, Since: 1}, start+3_000_000)
	if a.Delay != 500_000 { // five are left, at ten a second
		t.Errorf("%+v", a)
	}
}
