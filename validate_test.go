package hybridlimit_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func TestValidate(t *testing.T) {
	const (
		day   = 24 * time.Hour
		exact = 1 << 53
		most  = exact / 4                    // the largest Rate of a window
		years = exact / 8 * time.Microsecond // 35 years, the longest Period of a window
	)
	for _, tc := range []struct {
		limit hybridlimit.Limit
		want  []string // invalid fields; empty if the limit is valid
	}{
		{hybridlimit.TokenBucket(1, day, 1), nil},
		{hybridlimit.PerSecond(10_000_000), nil},
		{hybridlimit.TokenBucket(1, time.Microsecond, 1), nil},
		{hybridlimit.FixedWindow(5, time.Second), nil},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgFixedWindow, Rate: 5, Period: time.Second, Burst: 5}, nil},
		{hybridlimit.Limit{}, []string{"Limit.Rate", "Limit.Period"}},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgConcurrent + 1, Rate: -1, Period: -1, Burst: -1}, []string{"Limit.Algorithm", "Limit.Rate", "Limit.Period", "Limit.Burst"}},
		{hybridlimit.TokenBucket(1, 999, 1), []string{"Limit.Period"}},
		{hybridlimit.TokenBucket(1, 1001, 1), []string{"Limit.Period"}},
		{hybridlimit.TokenBucket(1, time.Second, -1), []string{"Limit.Burst"}},
		{hybridlimit.TokenBucket(math.MaxInt64, time.Second, 1), []string{"Limit"}},
		{hybridlimit.TokenBucket(1, time.Second, math.MaxInt64), []string{"Limit"}},
		{hybridlimit.TokenBucket(1, math.MaxInt64/1000*1000, 2), []string{"Limit"}},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgSlidingLog, Rate: 5, Period: time.Second, Burst: 6}, []string{"Limit.Burst"}},

		// Regression: windows had the bounds of a bucket's sub-units.
		{hybridlimit.FixedWindow(1_000_003, day), nil},
		{hybridlimit.SlidingLog(1_000_003, day), nil},
		{hybridlimit.TokenBucket(1_000_003, day, 0), []string{"Limit"}},
		{hybridlimit.FixedWindow(most, years), nil},
		{hybridlimit.SlidingLog(most, years), nil},
		{hybridlimit.SlidingWindow(most, years), nil},
		{hybridlimit.FixedWindow(most+1, years), []string{"Limit.Rate"}},
		{hybridlimit.SlidingWindow(1, years+time.Microsecond), []string{"Limit.Period"}},
		{hybridlimit.SlidingLog(math.MaxInt64, years+time.Microsecond), []string{"Limit.Rate", "Limit.Period"}},
		{hybridlimit.FixedWindow(0, 0), []string{"Limit.Rate", "Limit.Period"}},
		{hybridlimit.SlidingWindow(1_000_003, 30*day), nil},

		{hybridlimit.Unlimited(), nil},
		{hybridlimit.Blocked(), nil},
		{hybridlimit.Concurrent(1), nil},
		{hybridlimit.Concurrent(most), nil},
		{hybridlimit.Concurrent(most + 1), []string{"Limit.Rate"}},
		{hybridlimit.Concurrent(0), []string{"Limit.Rate"}},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgConcurrent, Rate: -1, Period: 1, Burst: 1}, []string{"Limit.Rate", "Limit.Period", "Limit.Burst"}},
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

// The last limit inside the exact range is valid, and the next one is not:
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
			t.Errorf("%v was accepted", last)
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
