package httplimit_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
)

// today starts the clock of a test at a time of this age. The clock of synctest starts in 2000, when an epoch was below
// 10⁹.
func today() {
	time.Sleep(time.Until(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
}

// form writes the fields of a response, as the vendor's documentation has them. It returns the status of a refusal.
type form func(h http.Header, left int, ends time.Time, refuses bool) int

// vendor is a server with a window of 20 requests in 10 s.
type vendor struct {
	fields form
	skew   time.Duration // of its clock

	mu      sync.Mutex
	ends    time.Time
	used    int
	refused int
}

func (v *vendor) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond)
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if !now.Before(v.ends) {
		v.ends, v.used = now.Add(10*time.Second), 0
	}
	resp := response(200)
	refuses := v.used >= 20
	if refuses {
		v.refused++
	} else {
		v.used++
	}
	status := v.fields(resp.Header, 20-v.used, v.ends.Add(v.skew), refuses)
	if refuses {
		resp.StatusCode = status
	}
	if v.skew != 0 || resp.Header.Get("Date") != "" {
		resp.Header.Set("Date", now.Add(v.skew).UTC().Format(http.TimeFormat))
	}
	return resp, nil
}

// up rounds a time up to whole seconds.
func up(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// epoch is a time in seconds, rounded up.
func epoch(at time.Time) string { return strconv.FormatInt(up(time.Duration(at.UnixNano())), 10) }

func set(h http.Header, fields ...string) {
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
}

func github(h http.Header, left int, ends time.Time, _ bool) int {
	set(h, "Date", "now", "x-ratelimit-limit", "20", "x-ratelimit-remaining", strconv.Itoa(left), "x-ratelimit-reset", epoch(ends),
		"x-ratelimit-used", strconv.Itoa(20-left), "x-ratelimit-resource", "core")
	return 403
}

// Eighty calls against the limit of each vendor: four windows. All are served, and no later than the windows allow plus
// the jitter of a tenth. A server that tells what is left refuses next to none.
func TestVendors(t *testing.T) {
	for name, tc := range map[string]struct {
		fields  form
		skew    time.Duration // of the server's clock
		refused int           // at most, by one caller
		crowd   int           // at most, by eight
		slack   time.Duration
	}{
		"GitHub":                {fields: github},
		"GitHub, another clock": {fields: github, skew: -5 * time.Hour},
		"GitHub, secondary limit": {fields: func(h http.Header, _ int, ends time.Time, refuses bool) int {
			github(h, 15, ends, refuses)
			h.Set("x-ratelimit-remaining", "4711")
			h.Set("x-ratelimit-limit", "5000")
			if refuses {
				h.Set("Retry-After", strconv.FormatInt(up(time.Until(ends)), 10))
			}
			return 403
		}, refused: 3, crowd: 2 * 8},
		"draft 03": {fields: func(h http.Header, left int, ends time.Time, _ bool) int {
			set(h, "RateLimit-Limit", "20, 20;w=10", "RateLimit-Remaining", strconv.Itoa(left), "RateLimit-Reset", strconv.FormatInt(up(time.Until(ends)), 10))
			return 429
		}},
		"an epoch in milliseconds": {fields: func(h http.Header, left int, ends time.Time, _ bool) int {
			set(h, "X-RateLimit-Limit", "20", "X-RateLimit-Remaining", strconv.Itoa(left), "X-RateLimit-Reset", strconv.FormatInt(ends.UnixMilli(), 10))
			return 429
		}},
		"Discord": {skew: time.Hour, fields: func(h http.Header, left int, ends time.Time, refuses bool) int {
			after := time.Until(ends) - time.Hour
			set(h, "X-RateLimit-Limit", "20", "X-RateLimit-Remaining", strconv.Itoa(left), "X-RateLimit-Bucket", "abcd1234",
				"X-RateLimit-Reset", fmt.Sprintf("%.3f", float64(ends.UnixMilli())/1000), "X-RateLimit-Reset-After", fmt.Sprintf("%.3f", after.Seconds()))
			if refuses {
				set(h, "Retry-After", strconv.FormatInt(up(after), 10), "X-RateLimit-Scope", "user")
			}
			return 429
		}},
		"Anthropic": {skew: -time.Minute, fields: func(h http.Header, left int, ends time.Time, _ bool) int {
			set(h, "anthropic-ratelimit-requests-limit", "20", "anthropic-ratelimit-requests-remaining", strconv.Itoa(left),
				"anthropic-ratelimit-requests-reset", ends.Add(time.Second).UTC().Format(time.RFC3339),
				"anthropic-ratelimit-tokens-limit", "100000", "anthropic-ratelimit-tokens-remaining", "99000",
				"anthropic-ratelimit-tokens-reset", ends.Add(time.Hour).UTC().Format(time.RFC3339))
			return 429
		}, slack: 4 * time.Second},
		"OpenAI": {fields: func(h http.Header, left int, ends time.Time, refuses bool) int {
			set(h, "x-ratelimit-limit-requests", "20", "x-ratelimit-remaining-requests", strconv.Itoa(left), "x-ratelimit-reset-requests", "6m0s",
				"x-ratelimit-limit-tokens", "150000", "x-ratelimit-remaining-tokens", "149984", "x-ratelimit-reset-tokens", "6m0s")
			if refuses {
				set(h, "retry-after-ms", strconv.FormatInt(time.Until(ends).Milliseconds()+1, 10), "retry-after", strconv.FormatInt(up(time.Until(ends)), 10))
			}
			return 429
		}, refused: 3, crowd: 2 * 8},
		"Azure OpenAI": {fields: func(h http.Header, left int, ends time.Time, refuses bool) int {
			set(h, "x-ratelimit-remaining-requests", strconv.Itoa(left), "x-ratelimit-remaining-tokens", "149984")
			if refuses {
				set(h, "retry-after-ms", strconv.FormatInt(time.Until(ends).Milliseconds()+1, 10), "x-ms-retry-after-ms", "1")
			}
			return 429
		}, refused: 3, crowd: 2 * 8},
		"Shopify": {fields: func(h http.Header, left int, ends time.Time, refuses bool) int {
			set(h, "X-Shopify-Shop-Api-Call-Limit", strconv.Itoa(20-left)+"/20")
			if refuses {
				h.Set("Retry-After", fmt.Sprintf("%.1f", time.Until(ends).Seconds()+0.1))
			}
			return 429
		}, refused: 3, crowd: 2 * 8},
		"Stripe": {fields: func(h http.Header, _ int, _ time.Time, refuses bool) int {
			if refuses {
				h.Set("Stripe-Rate-Limited-Reason", "endpoint-rate")
			}
			return 429
		}, refused: 2 * 3, crowd: 2 * 8, slack: 3 * 5 * time.Second},
	} {
		for _, callers := range []int{1, 8} {
			t.Run(fmt.Sprintf("%s, %d callers", name, callers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					today()
					server := &vendor{skew: tc.skew, fields: tc.fields}
					tr, err := httplimit.NewTransport(httplimit.TransportConfig{Base: server, MaxWait: 2 * time.Minute, MaxRetries: 10})
					if err != nil {
						t.Fatal(err)
					}
					start := time.Now()
					served := sendAll(t, tr, callers, 80)
					took, most := time.Since(start), tc.refused
					if callers > 1 {
						most = 8 + tc.crowd
					}
					if served != 80 || server.refused > most {
						t.Errorf("%d served, %d refused, want 80 and at most %d", served, server.refused, most)
					}
					between(t, "80 calls", took, 30*time.Second, 44*time.Second+tc.slack)
					t.Logf("%d served, %d refused, in %v", served, server.refused, took.Round(time.Millisecond))
				})
			})
		}
	}
}

// sendAll sends n requests, and returns how many were served.
func sendAll(t *testing.T, tr http.RoundTripper, callers, n int) (served int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range n / callers {
				resp, err := send(t, tr, http.MethodGet, "")
				mu.Lock()
				if err == nil && resp.StatusCode == 200 {
					served++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return served
}

// A window with many units left holds up nothing, however long it is. With few left, requests are spread.
func TestHourlyWindow(t *testing.T) {
	for left, slow := range map[int]bool{4000: false, 1100: false, 900: true} {
		synctest.Test(t, func(t *testing.T) {
			today()
			at := time.Now().Add(50 * time.Minute)
			n := left
			tr, _ := newTransport(t, httplimit.TransportConfig{MaxWait: time.Hour}, func(int, *http.Request) *http.Response {
				n--
				r := response(200)
				github(r.Header, n, at, false)
				set(r.Header, "x-ratelimit-limit", "5000", "Date", time.Now().UTC().Format(http.TimeFormat))
				return r
			})
			start := time.Now()
			sendAll(t, tr, 1, 100)
			if took := time.Since(start); slow != (took > time.Second) {
				t.Errorf("%d left: 100 requests in %v", left, took)
			}
		})
	}
}

// The quota may be followed by policies. The quota decides what few units are.
func TestQuotaOfDraft03(t *testing.T) {
	for quota, gap := range map[string]time.Duration{"100, 100;w=60": 10 * time.Second, "100": 10 * time.Second, "10": 0, "100 per minute": 0} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(200, "RateLimit-Limit", quota, "RateLimit-Remaining", "6", "RateLimit-Reset", "60")))
			sendAll(t, tr, 1, 4)
			for i := 2; i < 4; i++ { // the first of the six is sent at once
				between(t, quota, b.at[i]-b.at[i-1], gap, gap+time.Millisecond)
			}
		})
	}
}

// A client that sends as fast as it may uses nearly all of a limit that it knows from X-RateLimit-* alone, although the
// reset of a bucket is the time until it is full.
func TestTransportAgainstXRateLimit(t *testing.T) {
	for name, limit := range map[string]hybridlimit.Limit{
		"bucket": hybridlimit.TokenBucket(2, time.Second, 20), "window": hybridlimit.FixedWindow(20, 10*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				today()
				h := &served{}
				limited := middleware(t, httplimit.Config{Hide: true, XRateLimit: true}, httplimit.Limit{Limiter: newLocal(t, "api", limit), Key: fixed("k")})(h)
				refused := 0
				tr, err := httplimit.NewTransport(httplimit.TransportConfig{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					resp, err := serve{limited}.RoundTrip(r)
					if resp.StatusCode == 429 {
						refused++
					}
					return resp, err
				})})
				if err != nil {
					t.Fatal(err)
				}
				for start := time.Now(); time.Since(start) < 5*time.Minute; {
					if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 200 {
						t.Fatalf("%v, %v", resp, err)
					}
				}
				if given := 620; h.requests() < given*9/10 || refused*20 > h.requests() {
					t.Errorf("%d served of %d, %d refused", h.requests(), given, refused)
				}
				t.Logf("%d served of 620, %d refused", h.requests(), refused)
			})
		})
	}
}
