package httplimit

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// Numbers of a server that are too large to add are cut to the largest: the wait
// neither ends at once nor is negative.
func TestHugeNumbersOfAServerSaturate(t *testing.T) {
	for name, h := range map[string]http.Header{
		"t":               {"Ratelimit": {`"a";r=0;t=999999999999999`}},
		"t and w":         {"Ratelimit": {`"a";r=0;t=999999999999999`}, "Ratelimit-Policy": {`"a";q=1;w=999999999999999`}},
		"just countable":  {"Ratelimit": {`"a";r=0;t=9223372036`}},
		"little left":     {"Ratelimit": {`"a";r=1;t=999999999999999`}, "Ratelimit-Policy": {`"a";q=999999999999999;w=999999999999999`}},
		"several windows": {"Ratelimit": {`"a";r=0;t=999999999999999, "b";r=0;t=999999999999998`}},
	} {
		tr, err := NewTransport(TransportConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s := tr.sites.Of("h")
		for i := range 200 { // jitter is drawn anew each time
			mine := s.slot(time.Now(), 0.2, math.MaxInt64)
			if i > 0 && name != "little left" && mine.wait < 290*365*24*time.Hour || mine.wait < 0 {
				t.Fatalf("%s, request %d: a wait of %v", name, i, mine.wait)
			}
			tr.observe(s, mine.seq, &http.Response{StatusCode: http.StatusOK, Header: h})
		}
	}
}

// Retry-After and Age out of range are cut to the largest value, or have no effect.
func TestHugeRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		text, date string
		want       time.Duration
	}{
		{"99999999999999999999999", "", time.Duration(maxSeconds) * time.Second},
		{"9223372036854775807", "", time.Duration(maxSeconds) * time.Second},
		{"9223372037", "", time.Duration(maxSeconds) * time.Second},
		{"-99999999999999999999999", "", 0},
		{"-9223372036854775808", "", 0},
		{"-5", "", 0},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", math.MaxInt64},
		{"Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", 0},
	} {
		h := http.Header{"Retry-After": {tc.text}}
		if tc.date != "" {
			h.Set("Date", tc.date)
		}
		if got := retryAfterOf(h, now); got != tc.want {
			t.Errorf("%q: %v, want %v", tc.text, got, tc.want)
		}
	}
	for age, want := range map[string]bool{"99999999999999999999999": true, "1": true, "0": false, "-99999999999999999999999": false, "x": false, "": false} {
		if got := stale(http.Header{"Age": {age}}); got != want {
			t.Errorf("Age: %s: stale %t", age, got)
		}
	}
	for range 100 {
		for try := range 100 {
			if d := backoff(math.MaxInt64, try); d < 0 {
				t.Fatalf("retry %d: %v", try, d)
			}
			if d := backoff(time.Second, try); d < 0 {
				t.Fatalf("retry %d: %v", try, d)
			}
		}
	}
	for range 100 {
		if got := gate.Spread(math.MaxInt64 - 1); got < math.MaxInt64-1 {
			t.Fatalf("the longer wait is %v", got)
		}
	}
}

// If a limiter's figures are out of range, t is the largest Integer.
func TestHugeFiguresOfALimiter(t *testing.T) {
	limit := hybridlimit.Limit{Rate: 1, Period: 1 << 62, Burst: math.MaxInt64}
	it, _ := ratelimitheader.NewItem("a", limit)
	it.Window, it.Quota = 1, 1
	for _, left := range []int64{0, 1, math.MaxInt64} {
		res := hybridlimit.Result{Remaining: left, ResetAfter: math.MaxInt64}
		if got := it.Effective(res.Remaining, res.ResetAfter); got < 1 || got > ratelimitheader.MaxInteger {
			t.Errorf("%d left: t=%d", left, got)
		}
	}
}
