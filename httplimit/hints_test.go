package httplimit_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// If no unit is left, requests wait for the end of the window, without a refusal. If
// that is too late, they wait for MaxWait.
func TestNothingLeft(t *testing.T) {
	for window, want := range map[string]time.Duration{"10": 10 * time.Second, "1000": 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(200, "RateLimit", `"api";r=0;t=`+window)))
			for range 2 {
				if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 200 {
					t.Errorf("%v, %v", resp, err)
				}
			}
			between(t, "the second", b.at[1], want, want*11/10)
		})
	}
}

// A request that cannot wait for a hint does not fail.
func TestHintsFailNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(200, "RateLimit", `"api";r=0;t=10`)))
		send(t, tr, http.MethodGet, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
		if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != 200 || b.at[1] != 0 {
			t.Errorf("%v, %v, %v", resp, err, b.at)
		}
	})
}

// Below a fifth of the quota, the units left are spread over the window.
func TestSlowsDownBeforeExhaustion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{}, func(i int, _ *http.Request) *http.Response {
			if i == 0 {
				return response(200, "RateLimit-Policy", `"api";q=100;w=60`, "RateLimit", `"api";r=22;t=44`)
			}
			return response(200)
		})
		for range 24 {
			if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v, %v", resp, err)
			}
		}
		between(t, "the last request above a fifth of the quota", b.at[3], 0, 0)
		gap := 44 * time.Second / 19
		for i := 5; i < 23; i++ { // the first request below a fifth is sent at once
			between(t, "a gap", b.at[i]-b.at[i-1], gap-time.Millisecond, gap+time.Millisecond)
		}
	})
}

// Other units, cached responses and malformed fields have no effect.
func TestFieldsThatAreIgnored(t *testing.T) {
	for name, fields := range map[string][]string{
		"bytes":     {"RateLimit-Policy", `"b";q=9;qu="content-bytes"`, "RateLimit", `"b";r=0;t=10`},
		"cached":    {"RateLimit", `"api";r=0;t=10`, "Age", "5"},
		"malformed": {"RateLimit", `"api";r=0;t=10,`},
		"no window": {"RateLimit", `"api";r=0`},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(200, fields...)))
			send(t, tr, http.MethodGet, "")
			send(t, tr, http.MethodGet, "")
			between(t, name, b.at[1], 0, 0)
		})
	}
}

// held is a base that answers the first requests only when all of them have arrived.
func held(t *testing.T, n int, answer func(i int) *http.Response) *httplimit.Transport {
	t.Helper()
	var mu sync.Mutex
	came, all := 0, make(chan struct{})
	tr, err := httplimit.NewTransport(httplimit.TransportConfig{Base: roundTrip(func(*http.Request) (*http.Response, error) {
		mu.Lock()
		i := came
		if came++; came == n {
			close(all)
		}
		mu.Unlock()
		<-all
		time.Sleep(time.Duration(i) * time.Millisecond) // they are answered in the order in which they came
		return answer(i), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The units left in a response may not include the requests sent after it.
func TestRequestsOnTheirWayAreTakenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := held(t, 5, func(i int) *http.Response {
			if i == 0 {
				return response(200, "RateLimit", `"api";r=4;t=10`)
			}
			return response(200)
		})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { send(t, tr, http.MethodGet, "") })
			synctest.Wait()
		}
		wg.Wait()
		start := time.Now()
		send(t, tr, http.MethodGet, "")
		between(t, "the sixth", time.Since(start), 9*time.Second, 11*time.Second+10*time.Millisecond)
	})
}

// Retry-After takes precedence over an earlier RateLimit.
func TestRetryAfterTakesPrecedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := held(t, 2, func(i int) *http.Response {
			switch i {
			case 0:
				return response(200, "RateLimit", `"api";r=0;t=25`)
			case 1:
				return response(429, "Retry-After", "5")
			}
			return response(200)
		})
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { send(t, tr, http.MethodGet, "") })
			synctest.Wait()
		}
		wg.Wait()
		between(t, "the refused one", time.Since(start), 5*time.Second, 6*time.Second)
	})
}

// A request that waits for its turn in a window does not go out if the server refuses another one meanwhile.
func TestRefusalWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: time.Hour, MaxRetries: -1}, func(i int, _ *http.Request) *http.Response {
			switch i {
			case 0:
				return response(200, "RateLimit-Policy", `"a";q=100;w=100`, "RateLimit", `"a";r=10;t=100`)
			case 1:
				time.Sleep(time.Second)
				return response(429, "Retry-After", "60")
			}
			return response(200)
		})
		send(t, tr, http.MethodGet, "")
		var wg sync.WaitGroup
		for range 3 { // now, in 10 s and in 20 s
			wg.Go(func() { send(t, tr, http.MethodGet, "") })
			synctest.Wait()
		}
		wg.Wait()
		if len(b.at) != 4 {
			t.Fatalf("sent at %v", b.at)
		}
		between(t, "the third", b.at[2], 61*time.Second, 67*time.Second)
	})
}
