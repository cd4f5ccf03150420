package hybridlimit_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

// roundTrip writes a valid limit and reads it back.
func roundTrip(t interface {
	Helper()
	Errorf(string, ...any)
}, limit hybridlimit.Limit,
) {
	t.Helper()
	text, err := limit.MarshalText()
	if err != nil {
		t.Errorf("%+v: %v", limit, err)
		return
	}
	var back hybridlimit.Limit
	if limit.Calendar.Zone == "UTC" { // a text says UTC in both cases
		limit.Calendar.Zone = ""
	}
	if err := back.UnmarshalText(text); err != nil || back != limit {
		t.Errorf("%+v is %q, which is %+v, %v", limit, text, back, err)
	}
}

func TestMarshalText(t *testing.T) {
	for want, l := range map[string]hybridlimit.Limit{
		"100/s":                    hybridlimit.PerSecond(100),
		"100/s burst 200":          hybridlimit.TokenBucket(100, time.Second, 200),
		"100/s burst 100":          hybridlimit.TokenBucket(100, time.Second, 100),
		"5/min":                    hybridlimit.PerMinute(5),
		"5/h leaky bucket":         hybridlimit.LeakyBucket(5, time.Hour, 0),
		"5/d burst 3 leaky queue":  hybridlimit.LeakyQueue(5, 24*time.Hour, 3),
		"5/10s fixed window":       hybridlimit.FixedWindow(5, 10*time.Second),
		"5/10m sliding window":     hybridlimit.SlidingWindow(5, 10*time.Minute),
		"5/1m30s sliding log":      hybridlimit.SlidingLog(5, 90*time.Second),
		"5/1h0m1s":                 hybridlimit.TokenBucket(5, time.Hour+time.Second, 0),
		"5/1h30m":                  hybridlimit.TokenBucket(5, 90*time.Minute, 0),
		"5/48h":                    hybridlimit.TokenBucket(5, 48*time.Hour, 0),
		"5/1µs":                    hybridlimit.TokenBucket(5, time.Microsecond, 0),
		"5/1.5ms":                  hybridlimit.TokenBucket(5, 1500*time.Microsecond, 0),
		"5/s burst 5 fixed window": {Algorithm: hybridlimit.AlgFixedWindow, Rate: 5, Period: time.Second, Burst: 5},
		"unlimited":                hybridlimit.Unlimited(),
		"blocked":                  hybridlimit.Blocked(),
		"100 concurrent":           hybridlimit.Concurrent(100),
	} {
		if got, err := l.MarshalText(); string(got) != want || err != nil {
			t.Errorf("%+v: got %q and %v, want %q", l, got, err, want)
		}
		roundTrip(t, l)
	}
}

func TestMarshalTextRefuses(t *testing.T) {
	for _, l := range []hybridlimit.Limit{
		{},
		{Algorithm: hybridlimit.AlgConcurrent + 1, Rate: 1, Period: time.Second},
		hybridlimit.PerSecond(-1),
		{Algorithm: hybridlimit.AlgBlocked, Rate: 1},
		hybridlimit.Concurrent(0),
		{Algorithm: hybridlimit.AlgConcurrent, Rate: 1, Period: time.Second},
	} {
		if text, err := l.MarshalText(); text != nil || !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("%+v: %q, %v", l, text, err)
		}
	}
}

func TestUnmarshalTextKeepsTheLimitOnError(t *testing.T) {
	l := hybridlimit.PerSecond(7)
	if err := l.UnmarshalText([]byte("7/fortnight")); !errors.Is(err, hybridlimit.ErrInvalid) || l != hybridlimit.PerSecond(7) {
		t.Errorf("%v, %v", l, err)
	}
}

func TestEveryValidLimitRoundTrips(t *testing.T) {
	whole := rapid.OneOf( // all magnitudes are equally likely
		rapid.Int64Range(1, 1000), rapid.Int64Range(1, 1<<31), rapid.Int64Range(1, 1<<53), rapid.Int64Range(1, math.MaxInt64))
	micros := rapid.OneOf(rapid.Int64Range(1, 1_000_000), rapid.Int64Range(1, 1<<52), rapid.Int64Range(1, math.MaxInt64/1000),
		rapid.Map(rapid.Int64Range(1, 2_000_000), func(s int64) int64 { return s * 1_000_000 }))
	rapid.Check(t, func(t *rapid.T) {
		l := hybridlimit.Limit{Algorithm: hybridlimit.Algorithm(rapid.Uint8Range(0, uint8(hybridlimit.AlgConcurrent)).Draw(t, "algorithm"))}
		if l.Algorithm < hybridlimit.AlgUnlimited {
			l.Rate = whole.Draw(t, "rate")
			l.Period = time.Duration(micros.Draw(t, "period")) * time.Microsecond
			switch rapid.IntRange(0, 2).Draw(t, "kind of burst") {
			case 1:
				l.Burst = l.Rate
			case 2:
				l.Burst = whole.Draw(t, "burst")
			}
		}
		if l.Algorithm == hybridlimit.AlgConcurrent {
			l.Rate = whole.Draw(t, "permits")
		}
		if l.Algorithm == hybridlimit.AlgCalendarWindow {
			l.Burst = 0
			l.Calendar.Unit = hybridlimit.CalendarUnit(rapid.Uint8Range(0, 6).Draw(t, "unit"))
			l.Calendar.Anchor = rapid.OneOf(rapid.Just[uint16](0), rapid.Uint16Range(1, 32), rapid.Uint16Range(101, 1231)).Draw(t, "anchor")
			if l.Calendar.Unit != hybridlimit.FromUse {
				l.Period = 0
				l.Calendar.Zone = rapid.SampledFrom([]string{"", "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+12", "Local"}).Draw(t, "zone")
			}
		}
		if l.Validate() != nil {
			return
		}
		roundTrip(t, l)
	})
}

func FuzzMarshalText(f *testing.F) {
	f.Add(uint8(0), int64(100), int64(time.Second), int64(200))
	f.Add(uint8(3), int64(1<<51), int64(1<<50*time.Microsecond), int64(0))
	f.Add(uint8(8), int64(0), int64(0), int64(0))
	f.Add(uint8(9), int64(1<<51), int64(0), int64(0))
	f.Add(uint8(6), int64(5), int64(0), int64(3|15<<8))
	f.Fuzz(func(t *testing.T, algorithm uint8, rate, period, burst int64) {
		l := hybridlimit.Limit{Algorithm: hybridlimit.Algorithm(algorithm), Rate: rate, Period: time.Duration(period), Burst: burst}
		if l.Algorithm == hybridlimit.AlgCalendarWindow {
			l.Burst, l.Calendar = 0, hybridlimit.Calendar{Unit: hybridlimit.CalendarUnit(burst), Anchor: uint16(burst >> 8)}
		}
		_, _, _ = l.String(), l.BurstSize(), l.TimeToFull() // none panics, valid or not
		if l.Validate() == nil {
			roundTrip(t, l)
		} else if text, err := l.MarshalText(); err == nil {
			t.Errorf("%+v is %q", l, text)
		}
	})
}

func TestLimitsInJSON(t *testing.T) {
	type plans struct {
		Free  hybridlimit.Limit            `json:"free"`
		Paid  *hybridlimit.Limit           `json:"paid,omitempty"`
		Trial hybridlimit.Limit            `json:"trial,omitzero"`
		Names map[hybridlimit.Limit]string `json:"names"`
	}
	in := plans{Free: hybridlimit.PerMinute(5), Names: map[hybridlimit.Limit]string{hybridlimit.Blocked(): "none"}}
	text, err := json.Marshal(in)
	if want := `{"free":"5/min","names":{"blocked":"none"}}`; string(text) != want || err != nil {
		t.Fatalf("got %s and %v, want %s", text, err, want)
	}
	var out plans
	if err := json.Unmarshal(text, &out); err != nil || out.Free != in.Free || out.Paid != nil || out.Names[hybridlimit.Blocked()] != "none" {
		t.Errorf("%+v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"paid":"9/s"}`), &out); err != nil || *out.Paid != hybridlimit.PerSecond(9) {
		t.Errorf("%+v, %v", out, err)
	}
	for _, bad := range []string{`{"free":5}`, `{"free":{"Rate":5}}`, `{"free":""}`, `{"free":"5/x"}`} {
		if err := json.Unmarshal([]byte(bad), &out); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if _, err := json.Marshal(plans{}); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("the zero Limit in JSON: %v, want ErrInvalid", err)
	}
}

func TestLimitAsFlag(t *testing.T) {
	var l hybridlimit.Limit
	var usage strings.Builder
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(&usage)
	flags.TextVar(&l, "limit", hybridlimit.PerSecond(10), "limit of a client")
	if err := flags.Parse(nil); err != nil || l != hybridlimit.PerSecond(10) {
		t.Errorf("the default is %v, %v", l, err)
	}
	if err := flags.Parse([]string{"-limit", "5 per minute"}); err != nil || l != hybridlimit.PerMinute(5) {
		t.Errorf("%v, %v", l, err)
	}
	flags.PrintDefaults()
	if !strings.Contains(usage.String(), "(default 10/s)") {
		t.Errorf("usage: %s", usage.String())
	}
	flags.SetOutput(io.Discard)
	if err := flags.Parse([]string{"-limit", "5"}); err == nil || l != hybridlimit.PerMinute(5) {
		t.Errorf("%v, %v", l, err)
	}
}
