package httplimit_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// gaps fails unless the requests came after these pauses, and up to a tenth longer.
func gaps(t *testing.T, b *base, want ...time.Duration) {
	t.Helper()
	if len(b.at) != len(want)+1 {
		t.Fatalf("sent at %v, want %d more", b.at, len(want))
	}
	for i, w := range want {
		between(t, "a gap", b.at[i+1]-b.at[i], w, w*11/10)
	}
}

// The pause doubles with each refusal in a row, up to MaxBlock.
func TestPauseDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: time.Hour, MaxRetries: 9, MaxBlock: 70 * time.Second}, func(int, *http.Request) *http.Response { return response(429) })
		if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 429 {
			t.Fatalf("%v, %v", resp, err)
		}
		s := time.Second
		gaps(t, b, 5*s, 10*s, 20*s, 40*s, 70*s, 70*s, 70*s, 70*s, 70*s)
	})
}

// However many refusals there are in a row, and however long Pause is, a pause is MaxBlock at most.
func TestPauseIsBounded(t *testing.T) {
	for _, first := range []time.Duration{time.Nanosecond, 1<<62 + 1} {
		synctest.Test(t, func(t *testing.T) {
			tr, b := newTransport(t, httplimit.TransportConfig{Pause: first, MaxWait: 1 << 62, MaxRetries: 200}, func(int, *http.Request) *http.Response { return response(429) })
			send(t, tr, http.MethodGet, "")
			for i := 1; i < len(b.at); i++ {
				between(t, "a gap", b.at[i]-b.at[i-1], 0, 11*time.Minute)
			}
			between(t, "the last", b.at[200]-b.at[199], 10*time.Minute, 11*time.Minute)
		})
	}
}

// A request that the server serves ends the row. A failure of the server, a response of a cache and a refusal that
// names a time do not.
func TestRowOfPausesEnds(t *testing.T) {
	s := time.Second
	for name, tc := range map[string]struct {
		between *http.Response
		want    []time.Duration
	}{
		"200":       {response(200), []time.Duration{5 * s, 0, 5 * s}},
		"404":       {response(404), []time.Duration{5 * s, 0, 5 * s}},
		"500":       {response(500), []time.Duration{5 * s, 0, 10 * s}},
		"a cache":   {response(200, "Age", "3"), []time.Duration{5 * s, 0, 10 * s}},
		"a refusal": {response(429, "Retry-After", "7"), []time.Duration{5 * s, 7 * s, 10 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, b := newTransport(t, httplimit.TransportConfig{MaxRetries: -1}, answers(response(429), tc.between, response(429)))
				sendAll(t, tr, 1, 4)
				gaps(t, b, tc.want...)
			})
		})
	}
}

// Refusals of requests that were sent before the pause do not double it, and a success among them does not end the row.
// All requests wait, and are served afterwards.
func TestPauseOfACrowd(t *testing.T) {
	for name, last := range map[string]*http.Response{"all refused": response(429), "one served": response(200)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var at []time.Duration
				start := time.Now()
				tr, err := httplimit.NewTransport(httplimit.TransportConfig{MaxWait: time.Minute, Base: roundTrip(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					i := len(at)
					at = append(at, time.Since(start))
					mu.Unlock()
					switch {
					case i < 9:
						time.Sleep(time.Duration(i+1) * 10 * time.Millisecond)
						return response(429), nil
					case i == 9:
						time.Sleep(200 * time.Millisecond)
						return last, nil
					case i == 10:
						return response(429), nil
					}
					return response(200), nil
				})})
				if err != nil {
					t.Fatal(err)
				}
				if served := sendAll(t, tr, 10, 10); served != 10 {
					t.Errorf("%d served", served)
				}
				between(t, "the first again", at[10], 5*time.Second, 5500*time.Millisecond)
				between(t, "the second again", at[11], 15*time.Second, 17*time.Second)
			})
		})
	}
}

// The pause holds up all requests to that server. One that cannot wait is not sent.
func TestPauseHoldsUpAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: time.Second}, answers(response(429)))
		if resp, err := send(t, tr, http.MethodGet, ""); err != nil || resp.StatusCode != 429 {
			t.Fatalf("%v, %v", resp, err)
		}
		var busy *httplimit.BusyError
		if _, err := send(t, tr, http.MethodGet, ""); !errors.As(err, &busy) || busy.RetryAfter != 5*time.Second || len(b.at) != 1 {
			t.Errorf("%v, sent %d times", err, len(b.at))
		}
	})
}

// A pause is a guess, so it does not replace what the server has said about its windows.
func TestPauseKeepsWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxRetries: -1}, answers(response(200, "RateLimit", `"a";r=1;t=20`), response(429)))
		sendAll(t, tr, 1, 3)
		between(t, "the third", b.at[2], 20*time.Second, 22*time.Second)
	})
}
