package hybridlimit_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func TestConstructors(t *testing.T) {
	for _, tc := range []struct {
		got  hybridlimit.Limit
		want hybridlimit.Limit
	}{
		{hybridlimit.PerSecond(7), hybridlimit.Limit{Rate: 7, Period: time.Second}},
		{hybridlimit.PerMinute(7), hybridlimit.Limit{Rate: 7, Period: time.Minute}},
		{hybridlimit.PerHour(7), hybridlimit.Limit{Rate: 7, Period: time.Hour}},
		{hybridlimit.TokenBucket(7, time.Second, 9), hybridlimit.Limit{Algorithm: hybridlimit.AlgTokenBucket, Rate: 7, Period: time.Second, Burst: 9}},
		{hybridlimit.LeakyBucket(7, time.Second, 9), hybridlimit.Limit{Algorithm: hybridlimit.AlgLeakyBucket, Rate: 7, Period: time.Second, Burst: 9}},
		{hybridlimit.LeakyQueue(7, time.Second, 9), hybridlimit.Limit{Algorithm: hybridlimit.AlgLeakyQueue, Rate: 7, Period: time.Second, Burst: 9}},
		{hybridlimit.FixedWindow(7, time.Second), hybridlimit.Limit{Algorithm: hybridlimit.AlgFixedWindow, Rate: 7, Period: time.Second}},
		{hybridlimit.SlidingWindow(7, time.Second), hybridlimit.Limit{Algorithm: hybridlimit.AlgSlidingWindow, Rate: 7, Period: time.Second}},
		{hybridlimit.SlidingLog(7, time.Second), hybridlimit.Limit{Algorithm: hybridlimit.AlgSlidingLog, Rate: 7, Period: time.Second}},
	} {
		if tc.got != tc.want {
			t.Errorf("got %+v, want %+v", tc.got, tc.want)
		}
		if err := tc.got.Validate(); err != nil {
			t.Errorf("%v: %v", tc.got, err)
		}
	}
}

func TestLimitString(t *testing.T) {
	for want, l := range map[string]hybridlimit.Limit{
		"100 per 1s, burst 200 (token bucket)": hybridlimit.TokenBucket(100, time.Second, 200),
		"5 per 1m0s, burst 5 (token bucket)":   hybridlimit.PerMinute(5),
		"5 per 1s, burst 1 (leaky bucket)":     hybridlimit.LeakyBucket(5, time.Second, 1),
		"5 per 1s, burst 1 (leaky queue)":      hybridlimit.LeakyQueue(5, time.Second, 1),
		"5 per 1h0m0s (fixed window)":          hybridlimit.FixedWindow(5, time.Hour),
		"5 per 1s (sliding window)":            hybridlimit.SlidingWindow(5, time.Second),
		"5 per 1s (sliding log)":               hybridlimit.SlidingLog(5, time.Second),
		"0 per 0s, burst 0 (token bucket)":     {},
		"1 per 1s, burst 1 (Algorithm(200))":   {Algorithm: 200, Rate: 1, Period: time.Second},
	} {
		if got := l.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		limit hybridlimit.Limit
		want  []string // fields; none: valid
	}{
		{hybridlimit.TokenBucket(1, day, 1), nil},
		{hybridlimit.PerSecond(10_000_000), nil},
		{hybridlimit.TokenBucket(1, time.Microsecond, 1), nil},
		{hybridlimit.FixedWindow(5, time.Second), nil},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgFixedWindow, Rate: 5, Period: time.Second, Burst: 5}, nil},
		// Windows count in units: a large prime rate over a day is no trouble.
		{hybridlimit.SlidingWindow(999_983, day), nil},
		{hybridlimit.SlidingWindow(1<<51, day), nil},
		{hybridlimit.FixedWindow(1<<51+1, day), []string{"Limit.Rate"}},
		{hybridlimit.SlidingLog(1, 1<<50*time.Microsecond), nil},
		{hybridlimit.SlidingLog(1<<62, (1<<50+1)*time.Microsecond), []string{"Limit.Rate", "Limit.Period"}},
		{hybridlimit.Limit{}, []string{"Limit.Rate", "Limit.Period"}},
		{hybridlimit.Limit{Algorithm: 6, Rate: -1, Period: -1, Burst: -1}, []string{"Limit.Algorithm", "Limit.Rate", "Limit.Period", "Limit.Burst"}},
		{hybridlimit.TokenBucket(1, 999, 1), []string{"Limit.Period"}},
		{hybridlimit.TokenBucket(1, 1001, 1), []string{"Limit.Period"}},
		{hybridlimit.TokenBucket(1, time.Second, -1), []string{"Limit.Burst"}},
		{hybridlimit.TokenBucket(math.MaxInt64, time.Second, 1), []string{"Limit"}},
		{hybridlimit.TokenBucket(1, time.Second, math.MaxInt64), []string{"Limit"}},
		{hybridlimit.TokenBucket(1, math.MaxInt64/1000*1000, 2), []string{"Limit"}},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgSlidingLog, Rate: 5, Period: time.Second, Burst: 6}, []string{"Limit.Burst"}},
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

func TestTimeToFull(t *testing.T) {
	for _, tc := range []struct {
		limit hybridlimit.Limit
		want  time.Duration
	}{
		{hybridlimit.PerSecond(10), time.Second},
		{hybridlimit.TokenBucket(10, time.Second, 25), 2500 * time.Millisecond},
		{hybridlimit.TokenBucket(3, time.Second, 1), 333_333_334},
		{hybridlimit.TokenBucket(1, 24*time.Hour, 1), 24 * time.Hour},
		{hybridlimit.SlidingWindow(10, time.Minute), time.Minute},
		{hybridlimit.TokenBucket(1, time.Second, math.MaxInt64), hybridlimit.Never},
		{hybridlimit.TokenBucket(1, math.MaxInt64, 1), hybridlimit.Never},
		{hybridlimit.TokenBucket(2, math.MaxInt64, 2), hybridlimit.Never},
		{hybridlimit.TokenBucket(2, math.MaxInt64, 1), math.MaxInt64/2 + 1},
		{hybridlimit.Limit{}, hybridlimit.Never},
		// Cause: a quotient of 2⁶⁴−1 with a remainder was rounded up to 0.
		{hybridlimit.TokenBucket(2, 1_190_112_520_884_487_201, 31), hybridlimit.Never},
	} {
		if got := tc.limit.TimeToFull(); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.limit, got, tc.want)
		}
	}
}

func TestBurstSize(t *testing.T) {
	if got := hybridlimit.PerSecond(7).BurstSize(); got != 7 {
		t.Errorf("burst 0 is %d, want the rate", got)
	}
	if got := hybridlimit.TokenBucket(7, time.Second, 3).BurstSize(); got != 3 {
		t.Errorf("burst 3 is %d", got)
	}
}
