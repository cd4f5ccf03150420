package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// in returns a time of the test's clock, as seconds of an epoch.
func in(d time.Duration) string { return epoch(time.Now().Add(d)) }

// rfc returns a time of the test's clock, as RFC 3339.
func rfc(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

// What a refusal is, and its time. A time of 0 is Pause.
func TestRefusalsOfVendors(t *testing.T) {
	const no = -1 * time.Second // no refusal
	for name, tc := range map[string]struct {
		status int
		fields func() []string
		after  time.Duration
	}{
		"retry-after-ms": {429, func() []string { return []string{"retry-after-ms", "1500", "Retry-After", "2"} }, 1500 * time.Millisecond},
		"decimal":        {429, func() []string { return []string{"Retry-After", "2.0"} }, 2 * time.Second},
		"503":            {503, func() []string { return []string{"retry-after-ms", "700"} }, 700 * time.Millisecond},
		"503, X-RateLimit": {503, func() []string {
			return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}
		}, no},
		"RateLimit": {429, func() []string {
			return []string{"RateLimit", `"a";r=5;t=20, "b";r=0;t=7`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}
		}, 7 * time.Second},
		"RateLimit with units left": {429, func() []string {
			return []string{"RateLimit", `"a";r=5;t=20`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}
		}, 0},
		"malformed RateLimit": {429, func() []string {
			return []string{"RateLimit", `a;r=0;t=3`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}
		}, 9 * time.Second},
		"draft 03":      {429, func() []string { return []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "9"} }, 9 * time.Second},
		"a reset alone": {429, func() []string { return []string{"RateLimit-Reset", "9"} }, 9 * time.Second},
		"an epoch": {429, func() []string {
			return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(9 * time.Second)}
		}, 9 * time.Second},
		"an epoch of Date": {429, func() []string {
			date := time.Now().Add(-5 * time.Hour).UTC().Format(http.TimeFormat)
			return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(9*time.Second - 5*time.Hour), "Date", date}
		}, 9 * time.Second},
		"Reset-After": {429, func() []string {
			return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "2.5", "X-RateLimit-Reset", in(9 * time.Second)}
		}, 2500 * time.Millisecond},
		"Reset-After that is not usable": {429, func() []string {
			return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "soon", "X-RateLimit-Reset", in(9 * time.Second)}
		}, 9 * time.Second},
		"the later of two limits": {429, func() []string {
			return []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "4", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}
		}, 9 * time.Second},
		"units are left": {429, func() []string { return []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "9"} }, 0},
		"OpenAI": {429, func() []string {
			return []string{"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "6m0s", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "9"}
		}, 0},
		"Anthropic": {429, func() []string {
			return []string{
				"anthropic-ratelimit-requests-remaining", "7", "anthropic-ratelimit-requests-reset", rfc(20 * time.Second),
				"anthropic-ratelimit-tokens-remaining", "0", "anthropic-ratelimit-tokens-reset", rfc(9 * time.Second),
				"anthropic-ratelimit-input-tokens-remaining", "0", "anthropic-ratelimit-input-tokens-reset", rfc(6 * time.Second),
				"anthropic-ratelimit-output-tokens-reset", rfc(25 * time.Second),
			}
		}, 9 * time.Second},
		"GitHub, primary": {403, func() []string {
			return []string{"x-ratelimit-remaining", "0", "x-ratelimit-reset", in(9 * time.Second)}
		}, 9 * time.Second},
		"GitHub, secondary": {403, func() []string {
			return []string{"Retry-After", "9", "x-ratelimit-remaining", "4711", "x-ratelimit-reset", in(time.Hour)}
		}, 9 * time.Second},
		"403":                 {403, func() []string { return nil }, no},
		"403, units are left": {403, func() []string { return []string{"x-ratelimit-remaining", "9", "x-ratelimit-reset", in(time.Second)} }, no},
		"403, a reset alone":  {403, func() []string { return []string{"x-ratelimit-reset", in(9 * time.Second)} }, no},
		"403, no time":        {403, func() []string { return []string{"x-ratelimit-remaining", "0"} }, no},
		"403, a time that is over": {403, func() []string {
			return []string{"x-ratelimit-remaining", "0", "x-ratelimit-reset", in(-9 * time.Second)}
		}, no},
		"403 of draft 03": {403, func() []string { return []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "9"} }, no},
		"403 of a handler": {403, func() []string {
			return []string{"RateLimit", `"a";r=0;t=9`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}
		}, no},
		"401":                        {401, func() []string { return []string{"Retry-After", "9"} }, no},
		"a cache":                    {429, func() []string { return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "Age", "3"} }, 0},
		"a cache, 403":               {403, func() []string { return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "Age", "3"} }, no},
		"nothing":                    {429, func() []string { return nil }, 0},
		"a Retry-After of 0":         {429, func() []string { return []string{"Retry-After", "0"} }, 0},
		"two that differ":            {429, func() []string { return []string{"Retry-After", "9", "Retry-After", "8"} }, 0},
		"two that are equal":         {429, func() []string { return []string{"Retry-After", "9", "Retry-After", "9"} }, 9 * time.Second},
		"retry-after-ms, not usable": {429, func() []string { return []string{"retry-after-ms", "-1", "Retry-After", "9"} }, 9 * time.Second},
		"retry-after-ms, beyond time": {429, func() []string {
			return []string{"retry-after-ms", "1000000000000000000000000000000", "Retry-After", "9"}
		}, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				today()
				tr, b := newTransport(t, httplimit.TransportConfig{Pause: 3 * time.Second}, answers(response(tc.status, tc.fields()...)))
				b.start = time.Now()
				resp, err := send(t, tr, http.MethodPost, "body")
				if tc.status == 503 && tc.after >= 0 { // its POST is not safe to repeat
					send(t, tr, http.MethodGet, "")
				}
				if err != nil || len(b.at) == 1 != (tc.after == no) {
					t.Fatalf("%v, %v, sent at %v", resp, err, b.at)
				}
				if tc.after == no {
					if resp.StatusCode != tc.status {
						t.Errorf("status %d", resp.StatusCode)
					}
					return
				}
				want := tc.after
				if want == 0 {
					want = 3 * time.Second
				}
				between(t, "the next", b.at[1], want, want*11/10+time.Second/1000)
			})
		})
	}
}

// A value that is not usable holds up nothing: after a success the next request is sent at once, and after a 429 the
// next one waits for Pause. After a 403 the next one is sent at once.
func TestUnusableFields(t *testing.T) {
	bad := []string{
		"", " ", "NaN", "Inf", "+Inf", "-1", "-0", "+5", "1e30", "0x10", "1_000", "1000000000000000000000000000000", "9999999999999999", "soon", "1.2.3", ".", "5;6", "5, 6",
		"1970-01-01T00:00:00Z", "2025-12-31T00:00:00Z", "9999-12-31T23:59:59Z", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00Z", "1000000001", "1000000000001", "99999999999", "999999999",
	}
	for _, text := range bad {
		ignored(t, "RateLimit-Remaining", "0", "RateLimit-Reset", text)
		ignored(t, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", text)
		ignored(t, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", text)
		ignored(t, "anthropic-ratelimit-requests-remaining", "0", "anthropic-ratelimit-requests-reset", text)
	}
	for _, text := range append(bad[:18:18], "0") { // a longer wait is an order to stay away, for MaxBlock
		ignored(t, "Retry-After-Ms", text)
		if !strings.HasPrefix(text, "1000000") && !strings.HasPrefix(text, "9999999") {
			ignored(t, "Retry-After", text)
		}
	}
	for _, text := range bad[:18] {
		if text != "9999999999999999" {
			ignored(t, "RateLimit-Remaining", text, "RateLimit-Reset", "9")
			ignored(t, "X-RateLimit-Remaining", text, "X-RateLimit-Reset", "9")
			ignored(t, "anthropic-ratelimit-requests-remaining", text, "anthropic-ratelimit-requests-reset", "9")
		}
	}
	ignored(t, "X-RateLimit-Reset", "9", "X-RateLimit-Reset", "8", "X-RateLimit-Remaining", "0")
	ignored(t, "X-RateLimit-Remaining", "0", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "9")
	ignored(t, "X-RateLimit-Reset", "946684799", "X-RateLimit-Remaining", "0") // in 1999, below the least epoch
}

// ignored fails unless fields have no effect.
func ignored(t *testing.T, fields ...string) {
	t.Helper()
	for status, want := range map[int]time.Duration{200: 0, 403: 0, 429: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			today()
			tr, b := newTransport(t, httplimit.TransportConfig{Pause: 3 * time.Second, MaxRetries: -1}, answers(response(status, fields...)))
			b.start = time.Now()
			for range 2 {
				if _, err := send(t, tr, http.MethodGet, ""); err != nil {
					t.Fatalf("%q, %d: %v", fields, status, err)
				}
			}
			between(t, fmt.Sprintf("%q, %d", fields, status), b.at[1], want, want*11/10)
		})
	}
}

// A quota of 0 says that the server has switched its limit off.
func TestQuotaOfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(200, "X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9")))
		sendAll(t, tr, 1, 2)
		between(t, "the second", b.at[1], 0, 0)
	})
}

// Tokens are not requests: what is left of them holds up no request.
func TestTokensAreNotRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		today()
		var fields []string
		for _, unit := range []string{"tokens", "input-tokens", "output-tokens"} {
			fields = append(fields, "anthropic-ratelimit-"+unit+"-limit", "1000", "anthropic-ratelimit-"+unit+"-remaining", "0", "anthropic-ratelimit-"+unit+"-reset", rfc(9*time.Second))
		}
		tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(200, fields...)))
		b.start = time.Now()
		sendAll(t, tr, 1, 2)
		between(t, "the second", b.at[1], 0, 0)
	})
}

// No hint holds up a request for longer than MaxBlock.
func TestHintsAreBounded(t *testing.T) {
	for name, fields := range map[string][]string{
		"no unit":  {"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "86400"},
		"one unit": {"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "86400"},
		"of draft": {"RateLimit", `"a";r=0;t=86400`},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr, _ := newTransport(t, httplimit.TransportConfig{MaxWait: 24 * time.Hour, MaxBlock: time.Minute}, func(int, *http.Request) *http.Response { return response(200, fields...) })
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for range 4 {
						start := time.Now()
						send(t, tr, http.MethodGet, "")
						between(t, name, time.Since(start), 0, time.Minute)
					}
				})
			}
			wg.Wait()
		})
	}
}

// X-RateLimit-Bucket and X-RateLimit-Resource are a window of their own. If a key has two, neither holds up a request of
// the other. With a Key for each, both hold up their own.
func TestBuckets(t *testing.T) {
	for _, field := range []string{"X-RateLimit-Bucket", "X-RateLimit-Resource"} {
		for _, tc := range []struct {
			name string
			key  httplimit.KeyFunc
			held time.Duration // of the bucket without units
		}{{"one key", nil, 0}, {"a key for each", func(r *http.Request) string { return r.URL.Path }, 9 * time.Second}} {
			synctest.Test(t, func(t *testing.T) {
				tr, b := newTransport(t, httplimit.TransportConfig{Key: tc.key}, func(_ int, r *http.Request) *http.Response {
					left := "100"
					if r.URL.Path == "/search" {
						left = "0"
					}
					return response(200, field, r.URL.Path, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", left, "X-RateLimit-Reset", "9")
				})
				for i, path := range []string{"/core", "/search", "/core", "/core", "/search"} {
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test"+path, nil)
					if _, err := tr.RoundTrip(r); err != nil {
						t.Fatal(err)
					}
					want := time.Duration(0)
					if i == 4 {
						want = tc.held
					}
					between(t, tc.name+", "+path, b.at[i], want, want*11/10)
				}
			})
		}
	}
}

// A refusal in one bucket holds up all requests with its key, and none with another.
func TestRefusalOfABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := func(r *http.Request) string { return r.URL.Path }
		tr, b := newTransport(t, httplimit.TransportConfig{Key: key, MaxRetries: -1, MaxWait: time.Second}, answers(response(429, "Retry-After", "9", "X-RateLimit-Bucket", "a")))
		for _, path := range []string{"/a", "/b", "/a"} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test"+path, nil)
			_, err := tr.RoundTrip(r)
			var busy *httplimit.BusyError
			if errors.As(err, &busy) != (path == "/a" && len(b.at) == 2) {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}
