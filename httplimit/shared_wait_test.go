package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
)

// TestShareWaits has a Share without units: a request waits for them, or is not sent.
func TestShareWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := local.New(hybridlimit.TokenBucket(1, time.Second, 2), local.Config{Name: "api"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		cost := int64(1)
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: 1500 * time.Millisecond, Shared: []httplimit.Share{{
			Limiter: l, Cost: func(*http.Request) int64 { return cost },
		}}}, answers())
		for i, at := range []time.Duration{0, 0, time.Second, 2 * time.Second} {
			if _, err := send(t, tr, http.MethodPost, "x"); err != nil {
				t.Fatal(err)
			}
			between(t, fmt.Sprint("request ", i), b.at[i], at, at+10*time.Millisecond)
		}
		cost = 2
		var busy *httplimit.BusyError
		if _, err := send(t, tr, http.MethodGet, ""); !errors.As(err, &busy) {
			t.Errorf("two units, which take two seconds: %v", err)
		} else {
			between(t, "RetryAfter", busy.RetryAfter, 1900*time.Millisecond, 2*time.Second)
		}
		cost = 3
		if _, err := send(t, tr, http.MethodGet, ""); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
			t.Errorf("above the burst: %v", err)
		}
		cost = -1
		if _, err := send(t, tr, http.MethodGet, ""); !errors.Is(err, hybridlimit.ErrCost) {
			t.Errorf("a negative cost: %v", err)
		}
		cost = 0
		if _, err := send(t, tr, http.MethodGet, ""); err != nil {
			t.Errorf("without a cost: %v", err)
		}
		cost = 1
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		l.AllowN(t.Context(), "http://api.test", 1)
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/x", nil)
		if _, err := tr.RoundTrip(r); !errors.Is(err, context.Canceled) {
			t.Errorf("the client leaves: %v", err)
		}
		if len(b.at) != 5 {
			t.Errorf("%d requests were sent, want 5", len(b.at))
		}
	})
}

// TestShareOfAQueue sends requests at the times that a leaky queue gives them. A client that leaves gives its place
// back.
func TestShareOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := local.New(hybridlimit.LeakyQueue(10, time.Second, 10), local.Config{Name: "api"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		tr, b := newTransport(t, httplimit.TransportConfig{Shared: []httplimit.Share{{Limiter: l}}}, answers())
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := send(t, tr, http.MethodGet, ""); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i := 1; i < 5; i++ {
			between(t, "a gap", b.at[i]-b.at[i-1], 99*time.Millisecond, 101*time.Millisecond)
		}
	})
}

// TestShareStopsTheFleet refuses a request of one process. The others hear of it within 1.1 s, and send none until the
// time of the refusal is over. A 503 stops only the process that it refused.
func TestShareStopsTheFleet(t *testing.T) {
	for status, stops := range map[int]bool{429: true, 403: true, 503: false} {
		synctest.Test(t, func(t *testing.T) {
			bubble := redistest.NewBubble(t)
			var mu sync.Mutex
			var last time.Time
			refuse := false
			server := roundTrip(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if last = time.Now(); refuse {
					refuse = false
					return response(status, "Retry-After", "20"), nil
				}
				return response(200), nil
			})
			var trs []*httplimit.Transport
			for range 4 {
				l, err := hybrid.New(bubble.Client(nil), hybridlimit.PerSecond(10_000), hybrid.Config{Name: "api"})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				tr, err := httplimit.NewTransport(httplimit.TransportConfig{Base: server, MaxWait: -1, Shared: []httplimit.Share{{Limiter: l}}})
				if err != nil {
					t.Fatal(err)
				}
				trs = append(trs, tr)
				time.Sleep(137 * time.Millisecond)
			}
			try := func(d time.Duration) {
				for start := time.Now(); time.Since(start) < d; time.Sleep(20 * time.Millisecond) {
					for _, tr := range trs {
						resp, err := send(t, tr, http.MethodGet, "")
						if err == nil {
							resp.Body.Close()
						}
					}
				}
			}
			time.Sleep(4 * time.Second)
			try(time.Second)
			mu.Lock()
			refuse = true
			mu.Unlock()
			start := time.Now()
			try(15 * time.Second)
			if got := last.Sub(start); stops && got > 1100*time.Millisecond || !stops && got < 14*time.Second {
				t.Errorf("%d: the last request %v after the refusal", status, got)
			}
			try(8 * time.Second)
			if got := last.Sub(start); got < 22*time.Second {
				t.Errorf("%d: no request after the refusal was over, the last one after %v", status, got)
			}
		})
	}
}

// TestShareIsPausedForTenMinutes has a refusal for a day. MaxBlock bounds the pause of the fleet too.
func TestShareIsPausedForTenMinutes(t *testing.T) {
	for most, want := range map[time.Duration]time.Duration{0: 10*time.Minute - time.Second, time.Minute: time.Minute, time.Hour: 10*time.Minute - time.Second} {
		l := budget(t)
		tr, _ := newTransport(t, httplimit.TransportConfig{MaxBlock: most, MaxWait: -1, Shared: []httplimit.Share{{Limiter: l}}},
			answers(response(429, "Retry-After", "86400")))
		if _, err := send(t, tr, http.MethodGet, ""); err != nil {
			t.Fatal(err)
		}
		res, err := l.Allow(t.Context(), "http://api.test")
		if err != nil || res.Allowed || res.Source != hybridlimit.SourcePause {
			t.Errorf("MaxBlock %v: %+v, %v", most, res, err)
		}
		between(t, "RetryAfter", res.RetryAfter, want-time.Second, want)
	}
}

// TestLateRefusals lets the refusal of a request come when the pause of one that was sent before it is over. It stops
// nothing, and no line says that it did not.
func TestLateRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := budget(t)
		var log lines
		server := roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/late" {
				time.Sleep(7 * time.Second)
			}
			return response(429), nil // Pause: 5 s
		})
		tr, err := httplimit.NewTransport(httplimit.TransportConfig{
			Base: server, MaxWait: -1, Logger: log.logger(), Shared: []httplimit.Share{{Limiter: l, Key: fixed("account")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		refused := func(path string, pauses bool) {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test"+path, nil)
			if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%s: %v", path, err)
			}
			if res, err := l.Peek(t.Context(), "account"); err != nil || (res.Source == hybridlimit.SourcePause) != pauses {
				t.Errorf("after %s: %+v, %v", path, res, err)
			}
		}
		var late sync.WaitGroup
		late.Go(func() { refused("/late", false) })
		synctest.Wait()
		refused("/early", true)
		late.Wait()
		if n := log.count(); n != 0 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}
