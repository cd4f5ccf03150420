package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
)

// base answers requests, and records the time and the body of each.
type base struct {
	mu     sync.Mutex
	start  time.Time
	at     []time.Duration
	bodies []string
	answer func(i int, r *http.Request) *http.Response
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	body := ""
	if r.Body != nil {
		all, _ := io.ReadAll(r.Body)
		r.Body.Close()
		body = string(all)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = append(b.at, time.Since(b.start))
	b.bodies = append(b.bodies, body)
	return b.answer(len(b.at)-1, r), nil
}

// response returns a response with the given fields, in pairs of name and value.
func response(status int, fields ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("body"))}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

// answers returns the responses one after the other, and 200 after the last.
func answers(all ...*http.Response) func(int, *http.Request) *http.Response {
	return func(i int, _ *http.Request) *http.Response {
		if i < len(all) {
			return all[i]
		}
		return response(200)
	}
}

func newTransport(t *testing.T, cfg httplimit.TransportConfig, answer func(int, *http.Request) *http.Response) (*httplimit.Transport, *base) {
	t.Helper()
	b := &base{start: time.Now(), answer: answer}
	cfg.Base = b
	tr, err := httplimit.NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr, b
}

func send(t *testing.T, tr http.RoundTripper, method, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://api.test/x", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		r.Body, r.GetBody = nil, nil
	}
	return tr.RoundTrip(r)
}

// between fails unless lo ≤ d ≤ hi.
func between(t *testing.T, what string, d, lo, hi time.Duration) {
	t.Helper()
	if d < lo || d > hi {
		t.Errorf("%s: %v, want %v to %v", what, d, lo, hi)
	}
}

// A request waits for Retry-After and up to a tenth longer. Retry-After is in
// seconds, or a date of the server's clock.
func TestRetryAfterIsHonoured(t *testing.T) {
	for name, fields := range map[string][]string{
		"seconds":             {"Retry-After", "10"},
		"a date":              {"Retry-After", "Sat, 01 Jan 2000 00:00:10 GMT"},
		"a date, skewed":      {"Retry-After", "Sat, 01 Jan 2000 07:00:10 GMT", "Date", "Sat, 01 Jan 2000 07:00:00 GMT"},
		"before RateLimit's":  {"Retry-After", "10", "RateLimit", `"api";r=0;t=25`},
		"with what is broken": {"Retry-After", "10", "RateLimit", `"api`},
	} {
		for _, status := range []int{429, 503} {
			synctest.Test(t, func(t *testing.T) {
				tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(status, fields...)))
				resp, err := send(t, tr, http.MethodGet, "")
				if err != nil || resp.StatusCode != 200 || len(b.at) != 2 {
					t.Fatalf("%s: %v, %v, sent at %v", name, resp, err, b.at)
				}
				between(t, name, b.at[1], 10*time.Second, 11*time.Second)
			})
		}
	}
}

// Without a pause, the wait after a refusal that names no time is random, with a bound that doubles.
func TestBackoffWithJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			refusal := func() *http.Response { return response(429) }
			tr, b := newTransport(t, httplimit.TransportConfig{Pause: -1, Backoff: time.Second}, answers(refusal(), refusal(), refusal(), refusal(), refusal()))
			resp, err := send(t, tr, http.MethodGet, "")
			if err != nil || resp.StatusCode != 429 || len(b.at) != 4 {
				t.Fatalf("%v, %v, sent at %v", resp, err, b.at)
			}
			for i, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
				between(t, "backoff", b.at[i+1]-b.at[i], 0, most)
			}
			seen[b.at[1]] = true
		})
	}
	if len(seen) < 15 {
		t.Errorf("20 backoffs, %d different", len(seen))
	}
}

// A request that is not safe to retry is not sent again.
func TestOnlySafeRetries(t *testing.T) {
	for _, tc := range []struct {
		name   string
		method string
		body   string
		alter  func(*http.Request)
		status int
		fields []string
		sent   int
	}{
		{"GET, 429", "GET", "", nil, 429, []string{"Retry-After", "1"}, 2},
		{"POST, 429: it was not served", "POST", "hello", nil, 429, []string{"Retry-After", "1"}, 2},
		{"POST, 429, a body that is gone", "POST", "hello", func(r *http.Request) { r.GetBody = nil }, 429, []string{"Retry-After", "1"}, 1},
		{"POST, 429, a body that cannot be had again", "POST", "hello", func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		}, 429, []string{"Retry-After", "1"}, 1},
		{"PUT, 503", "PUT", "hello", nil, 503, []string{"Retry-After", "1"}, 2},
		{"POST, 503: it may have been served", "POST", "hello", nil, 503, []string{"Retry-After", "1"}, 1},
		{"POST, 503, with a key", "POST", "hello", func(r *http.Request) { r.Header.Set("Idempotency-Key", "7") }, 503, []string{"Retry-After", "1"}, 2},
		{"GET, 503 for good", "GET", "", nil, 503, nil, 1},
		{"GET, 500", "GET", "", nil, 500, []string{"Retry-After", "1"}, 1},
		{"GET, 301", "GET", "", nil, 301, []string{"Retry-After", "1"}, 1},
		{"GET, later than it may wait", "GET", "", nil, 429, []string{"Retry-After", "31"}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(tc.status, tc.fields...)))
			r, err := http.NewRequestWithContext(t.Context(), tc.method, "http://api.test/x", strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if tc.alter != nil {
				tc.alter(r)
			}
			resp, err := tr.RoundTrip(r)
			if err != nil || len(b.at) != tc.sent || tc.sent == 1 && resp.StatusCode != tc.status {
				t.Errorf("%s: %v, %v, sent %d times", tc.name, resp, err, len(b.at))
			}
			for _, body := range b.bodies {
				if body != tc.body {
					t.Errorf("%s: sent %q", tc.name, body)
				}
			}
			if tc.sent == 1 {
				if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "body" {
					t.Errorf("%s: the refusal's body is %q, %v", tc.name, body, err)
				}
			}
		})
	}
}

// Retry-After holds up all requests to its host, and to no other host. A request
// that cannot wait so long is not sent, and its body is closed.
func TestBlockedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: 5 * time.Second}, answers(response(429, "Retry-After", "60")))
		if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 429 {
			t.Fatalf("%v, %v", resp, err)
		}
		body := &closing{Reader: strings.NewReader("x")}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test/other", body)
		var busy *httplimit.BusyError
		if _, err := (&http.Client{Transport: tr}).Do(r); !errors.As(err, &busy) || busy.RetryAfter != time.Minute || !body.closed || len(b.at) != 1 {
			t.Errorf("%v, closed %t, sent %d", err, body.closed, len(b.at))
		}
		r, _ = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://other.test/", nil)
		if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != 200 {
			t.Errorf("another host: %v, %v", resp, err)
		}
		time.Sleep(58 * time.Second)
		if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 200 {
			t.Errorf("%v, %v", resp, err)
		}
		between(t, "the next", b.at[2], time.Minute, 61*time.Second)
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// A Retry-After of a year has an effect for MaxBlock.
func TestBlocksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(429, "Retry-After", "99999999999999999")))
		send(t, tr, http.MethodGet, "")
		time.Sleep(9*time.Minute + 45*time.Second)
		if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 200 {
			t.Errorf("%v, %v", resp, err)
		}
		between(t, "the next", b.at[1], 10*time.Minute, 10*time.Minute+2*time.Second)
	})
}

// A request waits only within its bounds, and stops when its context ends.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: -1, Pause: -1}, answers(response(429), response(429, "Retry-After", "1")))
		for range 2 {
			if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 429 {
				t.Errorf("%v, %v", resp, err)
			}
		}
		var busy *httplimit.BusyError
		if _, err := send(t, tr, http.MethodGet, ""); !errors.As(err, &busy) || len(b.at) != 2 || b.at[1] != 0 {
			t.Errorf("%v, %v", err, b.at)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		tr, _ := newTransport(t, httplimit.TransportConfig{}, answers(response(429, "Retry-After", "20")))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
		start := time.Now()
		if _, err := tr.RoundTrip(r); !errors.Is(err, context.Canceled) || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// With more hosts than MaxKeys, the least recently used one is removed.
func TestHostsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxKeys: 2, MaxWait: time.Second}, func(int, *http.Request) *http.Response {
			return response(429, "Retry-After", "60")
		})
		get := func(host string) error {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", nil)
			_, err := tr.RoundTrip(r)
			return err
		}
		for _, host := range []string{"a", "b", "a", "c", "b"} { // c pushes b out: a is younger
			err := get(host)
			if busy := host == "a" && len(b.at) == 2; (err != nil) != busy {
				t.Errorf("%s after %d: %v", host, len(b.at), err)
			}
		}
		if len(b.at) != 4 {
			t.Errorf("%d were sent", len(b.at))
		}
	})
}

func TestTransportConfigIsChecked(t *testing.T) {
	_, err := httplimit.NewTransport(httplimit.TransportConfig{SlowBelow: 2, Backoff: -1, MaxBlock: -1, MaxKeys: -1})
	if !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Fatalf("%v", err)
	}
	for _, field := range []string{"SlowBelow (2)", "Backoff", "MaxBlock", "MaxKeys"} {
		if !strings.Contains(err.Error(), "TransportConfig."+field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
}

// serve is a RoundTripper that calls a handler in this process.
type serve struct{ http.Handler }

func (s serve) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// Middleware and Transport together: the Transport uses nearly all of the limit, and
// hardly any of its requests is refused.
func TestTransportAgainstMiddleware(t *testing.T) {
	for name, limit := range map[string]hybridlimit.Limit{
		"bucket": hybridlimit.TokenBucket(2, time.Second, 20), "window": hybridlimit.FixedWindow(20, 10*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &served{}
				refused := 0
				limited := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "api", limit), Key: fixed("k")})(h)
				counting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					limited.ServeHTTP(w, r)
					if w.(*httptest.ResponseRecorder).Code == 429 {
						refused++
					}
				})
				tr, err := httplimit.NewTransport(httplimit.TransportConfig{Base: serve{counting}})
				if err != nil {
					t.Fatal(err)
				}
				for start := time.Now(); time.Since(start) < 5*time.Minute; {
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
					if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != 200 {
						t.Fatalf("%v, %v", resp, err)
					}
				}
				if given := 620; h.requests() < given*7/10 || refused*20 > h.requests() {
					t.Errorf("%d served of %d, %d refused", h.requests(), given, refused)
				}
				t.Logf("%d served of 620, %d refused", h.requests(), refused)
			})
		})
	}
}

// Two clients that are refused at the same time do not return at the same time.
func TestRetryAfterHasJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(429, "Retry-After", "10")))
			send(t, tr, http.MethodGet, "")
			seen[b.at[1]] = true
		})
	}
	if len(seen) < 15 {
		t.Errorf("20 came back at %d different times", len(seen))
	}
}
