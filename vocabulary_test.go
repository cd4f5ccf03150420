package hybridlimit_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

func TestCheckRequest(t *testing.T) {
	long := strings.Repeat("k", adapter.DefaultMaxKeyBytes)
	for _, tc := range []struct {
		name string
		key  string
		n    int64
		most int
		want error
	}{
		{"plain", "user-1", 1, 0, nil},
		{"any bytes", "\x00{}:\xff \r\n", 1, 0, nil},
		{"largest cost", "k", math.MaxInt64, 0, nil},
		{"empty key", "", 1, 0, hybridlimit.ErrEmptyKey},
		{"longest key", long, 1, 0, nil},
		{"too long", long + "k", 1, 0, hybridlimit.ErrKeyTooLong},
		{"configured longer", long + "k", 1, 600, nil},
		{"configured shorter", "abcd", 1, 3, hybridlimit.ErrKeyTooLong},
		{"no cost", "k", 0, 0, hybridlimit.ErrCost},
		{"negative cost", "k", math.MinInt64, 0, hybridlimit.ErrCost},
	} {
		if err := adapter.CheckRequest(tc.key, tc.n, tc.most); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestCheckRequestDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _ = adapter.CheckRequest("user-1", 1, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "api", "API_v2.read-only", "0", strings.Repeat("a", 128)} {
		if !adapter.CheckName(good) {
			t.Errorf("%q was refused", good)
		}
	}
	for _, bad := range []string{"", strings.Repeat("a", 129), "a:b", "a b", "{a}", "@epoch", "é", "a\x00", "a/b", "a*"} {
		if adapter.CheckName(bad) {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestInvalidErrorListsAll(t *testing.T) {
	var v adapter.Violations
	if err := v.Err("hybrid"); err != nil {
		t.Fatalf("Err without a violation = %v, want nil", err)
	}
	v.Add("Config.Name", "a b", "must match [A-Za-z0-9_.-]+")
	v.Add("Config.MaxKeys", -1, "must not be negative")
	v.AddLimit(hybridlimit.Limit{Rate: 1})
	err := fmt.Errorf("start: %w", v.Err("hybrid"))
	const want = `start: hybrid: Config.Name ("a b") must match [A-Za-z0-9_.-]+; Config.MaxKeys (-1) must not be negative; Limit.Period (0s) must be at least 1µs`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if !errors.Is(err, hybridlimit.ErrInvalid) || errors.Is(err, hybridlimit.ErrClosed) {
		t.Error("matches the wrong errors")
	}
}

// TestNamesOfSourcesAndAlgorithms guards the names: metrics and logs use them, so a
// change breaks dashboards.
func TestNamesOfSourcesAndAlgorithms(t *testing.T) {
	var got []string
	for s := range adapter.NumSources {
		got = append(got, hybridlimit.Source(s).String())
	}
	if s := strings.Join(got, " "); s != "unknown local lease credit redis deny_cache timeout fallback static switch shed pause rate_lease" {
		t.Errorf("sources: %s", s)
	}
	if s := hybridlimit.Source(adapter.NumSources).String(); s != "Source(13)" {
		t.Errorf("beyond the last source: %s", s)
	}
	got = nil
	for a := range hybridlimit.AlgConcurrent + 2 {
		got = append(got, a.String())
	}
	if s := strings.Join(got, ", "); s != "token bucket, leaky bucket, leaky queue, fixed window, sliding window, sliding log, calendar window, unlimited, blocked, concurrent, Algorithm(10)" {
		t.Errorf("algorithms: %s", s)
	}
}
