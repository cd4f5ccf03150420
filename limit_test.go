package hybridlimit_test

import (
	"math"
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
		{hybridlimit.PerDay(7), hybridlimit.Limit{Rate: 7, Period: 24 * time.Hour}},
		{hybridlimit.Unlimited(), hybridlimit.Limit{Algorithm: hybridlimit.AlgUnlimited}},
		{hybridlimit.Blocked(), hybridlimit.Limit{Algorithm: hybridlimit.AlgBlocked}},
		{hybridlimit.Concurrent(7), hybridlimit.Limit{Algorithm: hybridlimit.AlgConcurrent, Rate: 7}},
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
		"unlimited":                            hybridlimit.Unlimited(),
		"blocked":                              hybridlimit.Blocked(),
		"100 concurrent":                       hybridlimit.Concurrent(100),
		"1 per 1s, burst 1 (Algorithm(200))":   {Algorithm: 200, Rate: 1, Period: time.Second},
	} {
		if got := l.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
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
		{hybridlimit.Unlimited(), 0},
		{hybridlimit.Blocked(), 0},
		{hybridlimit.Concurrent(5), 0},
		// Regression: a quotient of 2⁶⁴−1 with a remainder was rounded up and became 0.
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
	if got := hybridlimit.Unlimited().BurstSize(); got != math.MaxInt64 {
		t.Errorf("unlimited is %d", got)
	}
	if got := hybridlimit.Concurrent(5).BurstSize(); got != 5 {
		t.Errorf("5 concurrent is %d", got)
	}
	if got := hybridlimit.Blocked().BurstSize(); got != 0 {
		t.Errorf("blocked is %d", got)
	}
}
