package hybridlimit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func TestParseLimit(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]hybridlimit.Limit{
		"100/s":                             hybridlimit.PerSecond(100),
		"100/s burst 200":                   hybridlimit.TokenBucket(100, time.Second, 200),
		"100/s burst 100":                   hybridlimit.TokenBucket(100, time.Second, 100),
		"5 per minute":                      hybridlimit.PerMinute(5),
		"1000/24h":                          hybridlimit.PerDay(1000),
		"10/1m30s burst 20":                 hybridlimit.TokenBucket(10, 90*time.Second, 20),
		"100/s token bucket":                hybridlimit.PerSecond(100),
		"100/s leaky bucket":                hybridlimit.LeakyBucket(100, time.Second, 0),
		"100/s gcra":                        hybridlimit.PerSecond(100),
		"30/min burst 16 GCRA":              hybridlimit.TokenBucket(30, time.Minute, 16),
		"30/min gcra burst 16":              hybridlimit.TokenBucket(30, time.Minute, 16),
		"30/min gcra token bucket":          {}, // one algorithm
		"30/min gcras":                      {},
		"100/s burst 20 leaky queue":        hybridlimit.LeakyQueue(100, time.Second, 20),
		"100/s leaky queue burst 20":        hybridlimit.LeakyQueue(100, time.Second, 20),
		"100/h fixed window":                hybridlimit.FixedWindow(100, time.Hour),
		"100/h sliding window":              hybridlimit.SlidingWindow(100, time.Hour),
		"100/h sliding log":                 hybridlimit.SlidingLog(100, time.Hour),
		"7/s fixed window burst 7":          {Algorithm: hybridlimit.AlgFixedWindow, Rate: 7, Period: time.Second, Burst: 7},
		"unlimited":                         hybridlimit.Unlimited(),
		"100 concurrent":                    hybridlimit.Concurrent(100),
		" 1_000 \t Concurrent ":             hybridlimit.Concurrent(1000),
		"100concurrent":                     hybridlimit.Concurrent(100),
		"\tUnLimited\n":                     hybridlimit.Unlimited(),
		"BLOCKED":                           hybridlimit.Blocked(),
		" 100 / S  BURST\t200 Leaky\nQueue": hybridlimit.LeakyQueue(100, time.Second, 200),
		"100/sburst":                        {}, // sburst is one word
		"100/s\u00a0burst\u00a0200":         hybridlimit.TokenBucket(100, time.Second, 200),
		"5per minute":                       hybridlimit.PerMinute(5),
		"1_000_000/s":                       hybridlimit.PerSecond(1_000_000),
		"1/s burst 1_0":                     hybridlimit.TokenBucket(1, time.Second, 10),
		"007/s":                             hybridlimit.PerSecond(7),
		"10 per 30 seconds":                 hybridlimit.TokenBucket(10, 30*time.Second, 0),
		"10 per 1 day":                      hybridlimit.PerDay(10),
		"10/7d":                             hybridlimit.TokenBucket(10, 7*day, 0),
		"10/1d 12h":                         hybridlimit.TokenBucket(10, 36*time.Hour, 0),
		"10/1.5h":                           hybridlimit.TokenBucket(10, 90*time.Minute, 0),
		"10/.5s":                            hybridlimit.TokenBucket(10, 500*time.Millisecond, 0),
		"10/1.s":                            hybridlimit.TokenBucket(10, time.Second, 0),
		"10/0.25d":                          hybridlimit.TokenBucket(10, 6*time.Hour, 0),
		"10/1.50000000000000000000000h":     hybridlimit.TokenBucket(10, 90*time.Minute, 0),
		"1/0.0000000003125d":                hybridlimit.TokenBucket(1, 27*time.Microsecond, 0),
		"10/1_000ms":                        hybridlimit.PerSecond(10),
		"10/2000ns":                         hybridlimit.TokenBucket(10, 2*time.Microsecond, 0),
		"1 per 1h0m0s":                      hybridlimit.PerHour(1),
		"2251799813685248/s fixed window":   hybridlimit.FixedWindow(1<<51, time.Second),
		"1/2501999h47m50.737s sliding log":  {}, // above 142 years
	} {
		got, err := hybridlimit.ParseLimit(text)
		if want == (hybridlimit.Limit{}) {
			if err == nil {
				t.Errorf("%q was read as %v", text, got)
			}
			continue
		}
		if got != want || err != nil {
			t.Errorf("%q: got %+v and %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseLimitKnowsUnits(t *testing.T) {
	for unit, want := range map[string]time.Duration{
		"us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond, "ms": time.Millisecond,
		"s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
		"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
		"h": time.Hour, "hour": time.Hour, "hours": time.Hour,
		"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	} {
		for format, times := range map[string]time.Duration{
			"1/%s": 1, "1 per %s": 1, "1/ %s burst 1": 1, "1/1%s": 1, "1/2 %s": 2, "1 per 2%s leaky queue": 2, "1/1%[1]s1%[1]s": 2,
		} {
			text := fmt.Sprintf(format, unit)
			if got, err := hybridlimit.ParseLimit(text); err != nil || got.Period != times*want {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	}
}

// Every duration text of the standard library is read with the same meaning.
func TestParseLimitReadsDurations(t *testing.T) {
	for _, text := range []string{"1h15m30.918s", "1ms500us", "2562047h47m16.854775s", "3.25m", "0h1s", "1us1000ns"} {
		want, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := hybridlimit.ParseLimit("1/" + text + " burst 1")
		if err != nil && want < 1<<52*time.Microsecond || err == nil && got.Period != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestParseLimitRefuses(t *testing.T) {
	const (
		unit      = "expected a unit (s, min, h, d, ms, µs)"
		after     = `expected "/", "per" or "concurrent" after a whole number, `
		rate      = `expected a rate such as 100/s, "unlimited" or "blocked", `
		algorithm = "an algorithm (token bucket, leaky bucket, leaky queue, fixed window, sliding window, sliding log)"
	)
	for text, want := range map[string]string{
		"":                                   rate + "got nothing",
		" \n":                                rate + "got nothing",
		"\x00":                               rate + `got "\x00"`,
		"fast":                               rate + `got "fast"`,
		"-5/s":                               rate + `got "-5/s"`,
		"+5/s":                               rate + `got "+5/s"`,
		"_5/s":                               rate + `got "_5/s"`,
		"5_/s":                               rate + `got "5_/s"`,
		"5__0/s":                             rate + `got "5__0/s"`,
		"１００/s":                              rate + `got "１００/s"`,
		"١٠٠/s":                              rate + `got "١٠٠/s"`,
		"/s":                                 rate + `got "/s"`,
		"100":                                after + "got nothing",
		"100 s":                              after + `got "s"`,
		"100 concurrently":                   after + `got "concurrently"`,
		"100 concurrent burst 5":             `expected nothing after concurrent, got "burst"`,
		"100/s concurrent":                   `expected "burst" or ` + algorithm + `, got "concurrent"`,
		"1.5/s":                              after + `got ".5/s"`,
		"1e6/s":                              after + `got "e6/s"`,
		"0x10/s":                             after + `got "x10/s"`,
		"100\x00/s":                          after + `got "\x00/s"`,
		"1,000/s":                            after + `got ",000/s"`,
		"5 personal":                         after + `got "personal"`,
		"9223372036854775808/s":              `expected a number of at most 9223372036854775807, got "9223372036854775808/s"`,
		"100/":                               "expected a duration such as 1m30s, got nothing",
		"100/-1s":                            `expected a duration such as 1m30s, got "-1s"`,
		"100/.s":                             `expected a duration such as 1m30s, got ".s"`,
		"100/_1s":                            `expected a duration such as 1m30s, got "_1s"`,
		"100/fortnight burst 1":              `expected a unit (s, min, h, d, week, month, year, ms, µs) or a duration such as 1m30s, got "fortnight"`,
		"100/ſ":                              `expected a unit (s, min, h, d, week, month, year, ms, µs) or a duration such as 1m30s, got "ſ"`,
		"100/5":                              unit + ` after 5, got nothing`,
		"100/1s5 burst 2":                    unit + ` after 5, got "burst"`,
		"100/1._5s":                          unit + ` after 1., got "_5s"`,
		"100/1.5.5s":                         unit + ` after 1.5, got ".5s"`,
		"100/1fortnight":                     unit + ` after 1, got "fortnight"`,
		"1/1.0000000001s":                    `expected a whole number of ns, got "1.0000000001s"`,
		"1/0.00000000000000000000001d":       `expected a whole number of ns, got "0.00000000000000000000001d"`,
		"1/9223372036854775808ns":            "expected a period of at most 2562047h47m16.854775807s",
		"1/106752d":                          "expected a period of at most 2562047h47m16.854775807s",
		"1/106751d 1d":                       "expected a period of at most 2562047h47m16.854775807s",
		"100/s\x00":                          `expected "burst" or ` + algorithm + `, got "\x00"`,
		"100/s, burst 5":                     `expected "burst" or ` + algorithm + `, got ","`,
		"100/s 200":                          `expected "burst" or ` + algorithm + `, got "200"`,
		"100/s leaky":                        `expected "burst" or ` + algorithm + `, got "leaky"`,
		"100/s lea\u212ay bucket":            `expected "burst" or ` + algorithm + `, got "lea` + "\u212a" + `y"`,
		"100/s token buckets":                `expected "burst" or ` + algorithm + `, got "token"`,
		"100/s unlimited":                    `expected "burst" or ` + algorithm + `, got "unlimited"`,
		"100/s burst 5 burst 6":              "expected " + algorithm + `, got "burst"`,
		"100/s sliding log sliding log":      `expected "burst", got "sliding"`,
		"100/s burst 5 leaky queue burst 10": `expected nothing after burst and algorithm, got "burst"`,
		"100/s burst":                        "expected a burst of at least 1, got nothing",
		"100/s burst -1":                     `expected a burst of at least 1, got "-1"`,
		"100/s burst 0":                      "expected a burst of at least 1, got 0",
		"100/s burst 99999999999999999999":   `expected a number of at most 9223372036854775807, got "99999999999999999999"`,
		"unlimited burst 5":                  `expected nothing after unlimited, got "burst"`,
		"blocked!":                           `expected nothing after blocked, got "!"`,
	} {
		wantInvalid(t, text, fmt.Sprintf("hybridlimit: Limit (%q) cannot be read: %s", text, want))
	}
}

func TestParseLimitValidates(t *testing.T) {
	for text, want := range map[string]string{
		"0/s":                             "Limit.Rate (0) must be at least 1",
		"1/0s":                            "Limit.Period (0s) must be at least 1µs",
		"1/ns":                            "Limit.Period (1ns) must be at least 1µs",
		"0/1500ns":                        "Limit.Rate (0) must be at least 1; Limit.Period (1.5µs) must be a whole number of µs",
		"5/s burst 6 sliding log":         "Limit.Burst (6) must be 0 or Rate: a window has no burst of its own",
		"2251799813685249/s fixed window": "Limit.Rate (2251799813685249) must be at most 2⁵¹ (2251799813685248)",
	} {
		wantInvalid(t, text, fmt.Sprintf("hybridlimit: Limit (%q) is not valid; %s", text, want))
	}
}

func wantInvalid(t *testing.T, text, want string) {
	t.Helper()
	got, err := hybridlimit.ParseLimit(text)
	var invalid *hybridlimit.InvalidError
	switch {
	case err == nil:
		t.Errorf("%q was read as %v", text, got)
	case !errors.Is(err, hybridlimit.ErrInvalid) || !errors.As(err, &invalid):
		t.Errorf("%q: %v is no InvalidError", text, err)
	case err.Error() != want:
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if got != (hybridlimit.Limit{}) {
		t.Errorf("%q: %v beside the error", text, got)
	}
}

// TestParseLimitAbridgesWhatItQuotes checks that an error is short enough for a line of a
// log, for any text.
func TestParseLimitAbridgesWhatItQuotes(t *testing.T) {
	for _, piece := range []string{"x", "9", "9/", "1/s x", "é", "1/s burst", "1/9", "\xff"} {
		_, err := hybridlimit.ParseLimit(strings.Repeat(piece, 1_000_000))
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("%q repeated: %.2000v", piece, err)
		}
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{
		"100/s burst 200", "5 per minute", "1000/24h", "10/1m30s burst 20", "1_000_000/s", "7/.5µs leaky bucket",
		"100/s burst 20 leaky queue", "100/h fixed window", "100/h sliding window", "1/2.5 days sliding log",
		"unlimited", "blocked", "", "\x00", "１/s", "1/106752d", "9223372036854775808/s", "1/1.0000000001s",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limit, err := hybridlimit.ParseLimit(text)
		if err != nil {
			if limit != (hybridlimit.Limit{}) || !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("%+v beside %v", limit, err)
			}
			return
		}
		if err := limit.Validate(); err != nil {
			t.Errorf("%q was read: %v", text, err)
		}
		roundTrip(t, limit)
	})
}
