package hybridlimit_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

func TestValidate(t *testing.T) {
	const (
		day   = 24 * time.Hour
		exact = 1 << 53
		years = exact / 2 * time.Microsecond // 142 of them
	)
	for _, tc := range []struct {
		limit hybridlimit.Limit
		want  []string // fields; none: valid
	}{
		{hybridlimit.TokenBucket(1, day, 1), nil},
		{hybridlimit.PerSecond(10_000_000), nil},
		{hybridlimit.TokenBucket(1, time.Microsecond, 1), nil},
		{hybridlimit.FixedWindow(5, time.Second), nil},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgFixedWindow, Rate: 5, Period: time.Second, Burst: 5}, nil},
		{hybridlimit.Limit{}, []string{"Limit.Rate", "Limit.Period"}},
		{hybridlimit.Limit{Algorithm: 8, Rate: -1, Period: -1, Burst: -1}, []string{"Limit.Algorithm", "Limit.Rate", "Limit.Period", "Limit.Burst"}},
		{hybridlimit.TokenBucket(1, 999, 1), []string{"Limit.Period"}},
		{hybridlimit.TokenBucket(1, 1001, 1), []string{"Limit.Period"}},
		{hybridlimit.TokenBucket(1, time.Second, -1), []string{"Limit.Burst"}},
		{hybridlimit.TokenBucket(math.MaxInt64, time.Second, 1), []string{"Limit"}},
		{hybridlimit.TokenBucket(1, time.Second, math.MaxInt64), []string{"Limit"}},
		{hybridlimit.TokenBucket(1, math.MaxInt64/1000*1000, 2), []string{"Limit"}},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgSlidingLog, Rate: 5, Period: time.Second, Burst: 6}, []string{"Limit.Burst"}},

		// Cause: windows were held to the sub-units of buckets.
		{hybridlimit.FixedWindow(1_000_003, day), nil},
		{hybridlimit.SlidingLog(1_000_003, day), nil},
		{hybridlimit.TokenBucket(1_000_003, day, 0), []string{"Limit"}},
		{hybridlimit.FixedWindow(exact-1, years), nil},
		{hybridlimit.SlidingLog(exact-1, years), nil},
		{hybridlimit.FixedWindow(exact, years), []string{"Limit.Rate"}},
		{hybridlimit.SlidingLog(math.MaxInt64, years+time.Microsecond), []string{"Limit.Rate", "Limit.Period"}},
		{hybridlimit.FixedWindow(0, 0), []string{"Limit.Rate", "Limit.Period"}},
		{hybridlimit.SlidingWindow(1_000_000, time.Hour), nil},
		{hybridlimit.SlidingWindow(52_124, day), nil},
		{hybridlimit.SlidingWindow(52_125, day), []string{"Limit"}},
		{hybridlimit.SlidingWindow(1_737, 30*day), nil},
		{hybridlimit.SlidingWindow(1_738, 30*day), []string{"Limit"}},
		{hybridlimit.SlidingWindow(exact/2, time.Microsecond), nil},
		{hybridlimit.SlidingWindow(exact/2+1, time.Microsecond), []string{"Limit"}},
		{hybridlimit.SlidingWindow(1, years), nil},
		{hybridlimit.SlidingWindow(1, years+time.Microsecond), []string{"Limit"}},
		{hybridlimit.SlidingWindow(math.MaxInt64, math.MaxInt64/1000*1000), []string{"Limit"}},

		{hybridlimit.Unlimited(), nil},
		{hybridlimit.Blocked(), nil},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgUnlimited, Rate: 1}, []string{"Limit.Rate"}},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgBlocked, Period: time.Second}, []string{"Limit.Period"}},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgBlocked, Rate: -1, Period: 1, Burst: 1}, []string{"Limit.Rate", "Limit.Period", "Limit.Burst"}},
	} {
		err := tc.limit.Validate()
		var invalid *hybridlimit.InvalidError
		if len(tc.want) == 0 {
			if err != nil {
				t.Errorf("%v: %v", tc.limit, err)
			}
			continue
		}
		if !errors.As(err, &invalid) || !errors.Is(err, hybridlimit.ErrInvalid) || invalid.Package != "hybridlimit" {
			t.Errorf("%v: %v is no InvalidError of this package", tc.limit, err)
			continue
		}
		var fields []string
		for _, v := range invalid.Violations {
			fields = append(fields, v.Field)
		}
		if strings.Join(fields, " ") != strings.Join(tc.want, " ") {
			t.Errorf("%v: fields %v, want %v", tc.limit, fields, tc.want)
		}
	}
}

// The last limit inside the exact range is taken and its neighbour is not:
// 2·Burst·Period/g + Rate/g ≤ 2⁵³.
func TestValidateAtTheBound(t *testing.T) {
	const exact = 1 << 53
	for _, tc := range []struct {
		rate, period, unit, refill int64 // period in µs
	}{
		{1, 86_400_000_000, 86_400_000_000, 1},
		{1_000_000, 1_000_000, 1, 1},
		{10_000_000, 1_000_000, 1, 10},
		{3, 1_000_000, 1_000_000, 3},
		{999_983, 3_600_000_000, 3_600_000_000, 999_983}, // a prime rate
		{2, 2, 1, 1},
	} {
		burst := (exact - tc.refill) / 2 / tc.unit
		last := hybridlimit.TokenBucket(tc.rate, time.Duration(tc.period)*time.Microsecond, burst)
		if err := last.Validate(); err != nil {
			t.Errorf("%v: %v", last, err)
		}
		last.Burst++
		if last.Validate() == nil {
			t.Errorf("%v was taken", last)
		}
	}
	// The refill alone can fill the range.
	for refill, ok := range map[int64]bool{exact - 2: true, exact - 1: false, exact: false, exact + 1: false, math.MaxInt64: false} {
		l := hybridlimit.TokenBucket(refill, time.Microsecond, 1)
		if err := l.Validate(); (err == nil) != ok {
			t.Errorf("%v: %v", l, err)
		}
	}
}

// What Validate takes, a float64 computes as integers do, at the end of the
// range too: whether a cost fits a window that holds count already.
func TestWindowsAreExactAtTheBound(t *testing.T) {
	const exact = 1 << 53
	fits := func(rate, count, n int64) bool { return float64(count)+float64(n) <= float64(rate) }
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, exact-1).Draw(t, "rate")
		count, n := rapid.Int64Range(0, rate).Draw(t, "count"), rapid.Int64Range(1, rate).Draw(t, "n")
		if got, want := fits(rate, count, n), n <= rate-count; got != want {
			t.Errorf("%d + %d ≤ %d: %v, want %v", count, n, rate, got, want)
		}
	})
	if fits(exact-1, exact-1, 1) {
		t.Error("one too many fits below the bound")
	}
	if !fits(exact, exact, 1) {
		t.Error("the bound on Rate may be 2⁵³ after all")
	}
	rapid.Check(t, func(t *rapid.T) {
		period := rapid.Int64Range(1, exact/2).Draw(t, "period")
		rate := rapid.Int64Range(1, exact/2/period).Draw(t, "rate")
		if err := hybridlimit.SlidingWindow(rate, time.Duration(period)*time.Microsecond).Validate(); err != nil {
			t.Fatal(err)
		}
		cur, prev := rapid.Int64Range(0, rate).Draw(t, "cur"), rapid.Int64Range(0, rate).Draw(t, "prev")
		left := rapid.Int64Range(0, period).Draw(t, "left")
		if got := float64(cur)*float64(period) + float64(prev)*float64(left); int64(got) != cur*period+prev*left {
			t.Errorf("%d·%d + %d·%d is %.0f", cur, period, prev, left, got)
		}
	})
}
