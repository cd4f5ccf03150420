package httplimit_test

import (
	"context"
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

// sendWithin sends a request that is cancelled after d, and returns the result.
func sendWithin(t *testing.T, tr http.RoundTripper, d time.Duration) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stop := time.AfterFunc(d, cancel) // not a deadline, which would be known beforehand
	defer stop.Stop()
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr.RoundTrip(r)
}

// The same if units are left: the units are available again, and so is the time over
// which they are spread.
func TestUnitsOfThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{}, answers(response(200, "RateLimit-Policy", `"api";q=100;w=100`, "RateLimit", `"api";r=10;t=20`)))
		send(t, tr, http.MethodGet, "")
		send(t, tr, http.MethodGet, "") // at once; the next is 2 s later
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { sendWithin(t, tr, time.Second) })
		}
		wg.Wait()
		for range 3 {
			send(t, tr, http.MethodGet, "")
		}
		between(t, "the first of the rest", b.at[2], 2*time.Second-time.Millisecond, 2*time.Second+time.Millisecond)
		between(t, "the third", b.at[4], 5*time.Second, 7*time.Second)
	})
}

// Requests that are sent at once because they cannot wait delay no other request.
func TestSlotsThatAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: time.Minute}, answers(response(200, "RateLimit-Policy", `"api";q=10;w=10`, "RateLimit", `"api";r=0;t=10`)))
		send(t, tr, http.MethodGet, "")
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
			if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != 200 {
				t.Errorf("%v, %v", resp, err)
			}
			cancel()
		}
		send(t, tr, http.MethodGet, "")
		between(t, "the next", b.at[21], 10*time.Second, 11*time.Second)
	})
}

// The same for requests that wait for MaxWait and are sent before their slot.
func TestSlotsBeyondMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: 2 * time.Second}, answers(response(200, "RateLimit-Policy", `"api";q=10;w=10`, "RateLimit", `"api";r=0;t=10`)))
		send(t, tr, http.MethodGet, "")
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { send(t, tr, http.MethodGet, "") })
		}
		wg.Wait()
		between(t, "the last of those", b.at[5], 2*time.Second, 2*time.Second)
		time.Sleep(7 * time.Second)
		send(t, tr, http.MethodGet, "")
		between(t, "one that can wait", b.at[6], 10*time.Second, 10200*time.Millisecond)
	})
}

// A response with more units left than expected lets the next request go now, not at
// the end of the window.
func TestMoreIsLeftThanWasThought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const policy = `"api";q=100;w=100` // one a second
		tr, b := newTransport(t, httplimit.TransportConfig{}, answers(
			response(200, "RateLimit-Policy", policy, "RateLimit", `"api";r=0;t=2`),
			response(200, "RateLimit-Policy", policy, "RateLimit", `"api";r=5;t=1`)))
		send(t, tr, http.MethodGet, "")
		var wg sync.WaitGroup
		for range 3 { // in 2, 3 and 4 s, and a tenth at most
			wg.Go(func() { send(t, tr, http.MethodGet, "") })
		}
		time.Sleep(2500 * time.Millisecond) // the first of them has heard
		send(t, tr, http.MethodGet, "")
		wg.Wait()
		between(t, "the next", b.at[2], 2500*time.Millisecond, 2500*time.Millisecond)
	})
}

// overtaken returns a Transport whose base answers the second of two requests first.
func overtaken(t *testing.T, cfg httplimit.TransportConfig, first, second *http.Response) *httplimit.Transport {
	t.Helper()
	var mu sync.Mutex
	n := 0
	cfg.Base = roundTrip(func(*http.Request) (*http.Response, error) {
		mu.Lock()
		i := n
		n++
		mu.Unlock()
		switch i {
		case 0:
			time.Sleep(2 * time.Second)
			return first, nil
		case 1:
			time.Sleep(time.Second)
			return second, nil
		}
		return response(200), nil
	})
	tr, err := httplimit.NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// A response that arrives after the response to a later request is outdated. It has
// no effect, whether it has more units left or fewer.
func TestAnswersThatWereOvertaken(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second *http.Response
		lo, hi        time.Duration // when a third one is sent
	}{
		{"more is left", response(200, "RateLimit", `"api";r=50;t=60`), response(200, "RateLimit", `"api";r=0;t=10`), 11 * time.Second, 12 * time.Second},
		{"less is left", response(200, "RateLimit", `"api";r=0;t=20`), response(200, "RateLimit", `"api";r=50;t=60`), 2 * time.Second, 2 * time.Second},
		{"Retry-After", response(200, "RateLimit", `"api";r=0;t=25`), response(429, "Retry-After", "5"), 6 * time.Second, 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			tr := overtaken(t, httplimit.TransportConfig{MaxRetries: -1}, tc.first, tc.second)
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { send(t, tr, http.MethodGet, "") })
				synctest.Wait()
			}
			wg.Wait()
			send(t, tr, http.MethodGet, "")
			between(t, tc.name, time.Since(start), tc.lo, tc.hi)
		})
	}
}

// Only the first eight policies of a field count.
func TestManyPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var items []string
		for i := range 9 {
			item := fmt.Sprintf(`"p%d";r=0`, i)
			if i == 8 { // the only one that says for how long
				item += ";t=10"
			}
			items = append(items, item)
		}
		tr, b := newTransport(t, httplimit.TransportConfig{SlowBelow: -1}, answers(response(200, "RateLimit", strings.Join(items, ", "))))
		send(t, tr, http.MethodGet, "")
		send(t, tr, http.MethodGet, "")
		between(t, "the second", b.at[1], 0, 0)
	})
}

// A Retry-After above the range of time.Duration is cut to the longest. A negative
// one or 0 has no effect.
func TestRetryAfterBeyondNumbers(t *testing.T) {
	for text, blocked := range map[string]bool{"99999999999999999999999": true, "-99999999999999999999999": false, "0": false} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := newTransport(t, httplimit.TransportConfig{MaxRetries: -1}, answers(response(429, "Retry-After", text)))
			send(t, tr, http.MethodGet, "")
			var busy *httplimit.BusyError
			if _, err := send(t, tr, http.MethodGet, ""); errors.As(err, &busy) != blocked || blocked == (len(b.at) == 2) {
				t.Errorf("%s: %v, sent %d times", text, err, len(b.at))
			}
		})
	}
}

// A request that has already ended fails with its context's error, even if its
// server is blocked.
func TestEndedRequestsSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _ := newTransport(t, httplimit.TransportConfig{MaxRetries: -1}, answers(response(429, "Retry-After", "3600")))
		send(t, tr, http.MethodGet, "")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
		if _, err := tr.RoundTrip(r); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// TransportConfig.Key groups the requests to one server: no other server is held up.
func TestKeysAreOfOneServer(t *testing.T) {
	for name, key := range map[string]httplimit.KeyFunc{"none": fixed(""), "one": fixed("ann")} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := newTransport(t, httplimit.TransportConfig{Key: key, MaxRetries: -1}, answers(response(429, "Retry-After", "3600")))
			for i, url := range []string{"http://a.test/", "http://b.test/", "https://a.test/", "http://a.test:81/", "http://a.test/x"} {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				if _, err := tr.RoundTrip(r); (err != nil) != (i == 4) {
					t.Errorf("%s: %s: %v", name, url, err)
				}
			}
			if len(b.at) != 4 {
				t.Errorf("%s: %d were sent", name, len(b.at))
			}
		})
	}
}
