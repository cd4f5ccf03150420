package httplimit_test

import (
	"context"
	"errors"
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

// Concurrent requests reduce the units left before the next response arrives.
func TestConcurrentRequestsShareWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{SlowBelow: -1}, answers(response(200, "RateLimit", `"api";r=5;t=10`)))
		send(t, tr, http.MethodGet, "")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { send(t, tr, http.MethodGet, "") })
		}
		wg.Wait()
		early := 0
		for _, at := range b.at[1:] {
			if at == 0 {
				early++
			} else {
				between(t, "one of the rest", at, 10*time.Second, 11*time.Second)
			}
		}
		if early != 5 {
			t.Errorf("%d were sent at once", early)
		}
	})
}

// Requests that cannot wait leave the queue to others. At twice the rate and with
// deadlines of 5 s, half of all requests are served, not only those of the first
// 5 s.
func TestShapingServesThoseWhoCanWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &served{}
		var log lines
		handler := middleware(t, httplimit.Config{Logger: log.logger()}, httplimit.Limit{
			Limiter: newLocal(t, "shape", hybridlimit.LeakyQueue(1, time.Second, 100)), Key: fixed("k"),
		})(h)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				get(handler, func(r *http.Request) { *r = *r.WithContext(ctx) })
			})
			time.Sleep(time.Second / 2)
		}
		wg.Wait()
		if n := h.requests(); n < 490 || n > 510 {
			t.Errorf("%d of 1000 are served, want 500", n)
		}
		if !strings.Contains(log.String(), "WARN") || strings.Contains(log.String(), "ERROR") || log.count() > 501 {
			t.Errorf("%d lines, the last:\n%.300s", log.count(), log.String())
		}
	})
}

// The same with a fleet's queue, alone and asked together with another limit.
func TestShapingOfAFleetServesThoseWhoCanWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hubOf(t, nil, map[string]hybridlimit.Limit{"queue": hybridlimit.LeakyQueue(1, time.Second, 100), "user": hybridlimit.PerHour(100_000)})
		for key, limits := range map[string][]httplimit.Limit{
			"alone":    {{Limiter: l["queue"], Key: fixed("alone")}},
			"together": {{Limiter: l["queue"], Key: fixed("together")}, {Limiter: l["user"], Key: fixed("k")}},
		} {
			h := &served{}
			var log lines
			handler := middleware(t, httplimit.Config{Logger: log.logger()}, limits...)(h)
			var wg sync.WaitGroup
			for range 200 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					get(handler, func(r *http.Request) { *r = *r.WithContext(ctx) })
				})
				time.Sleep(time.Second / 2)
			}
			wg.Wait()
			if n := h.requests(); n < 95 || n > 106 {
				t.Errorf("%s: %d of 200 are served, want 100, and those who wait at the end", key, n)
			}
		}
	})
}

// Requests that stop waiting leave their slots: the next request waits for the end
// of the window, not behind them.
func TestSlotsOfThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: time.Minute}, answers(response(200, "RateLimit-Policy", `"api";q=10;w=10`, "RateLimit", `"api";r=0;t=10`)))
		send(t, tr, http.MethodGet, "")
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := sendWithin(t, tr, time.Second); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		send(t, tr, http.MethodGet, "")
		between(t, "the next", b.at[1], 10*time.Second, 11*time.Second)
	})
}

// A request waits for its retry. Meanwhile the server holds up all requests for
// longer than this request can wait: it fails with *BusyError.
func TestPutOffWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, b := newTransport(t, httplimit.TransportConfig{MaxWait: 30 * time.Second}, func(_ int, r *http.Request) *http.Response {
			return response(429, "Retry-After", r.Header.Get("Wants"))
		})
		other, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
		other.Header.Set("Wants", "600")
		var wg sync.WaitGroup
		wg.Go(func() {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
			r.Header.Set("Wants", "10")
			var busy *httplimit.BusyError
			if resp, err := tr.RoundTrip(r); !errors.As(err, &busy) || resp != nil {
				t.Errorf("%v, %v", resp, err)
			}
		})
		synctest.Wait()
		time.Sleep(10*time.Second + time.Millisecond) // new requests are not held up
		tr.RoundTrip(other)
		wg.Wait()
		if len(b.at) > 3 {
			t.Errorf("sent at %v", b.at)
		}
	})
}

// A client that disconnects while its request is delayed leaves the queue: the
// handler is not called, and the place is free.
func TestClientsThatLeaveTheQueue(t *testing.T) {
	h := &served{}
	queue := newLocal(t, "shape", hybridlimit.LeakyQueue(1, time.Hour, 2))
	server := httptest.NewServer(middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: queue, Key: fixed("k")})(h))
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error)
	go func() {
		_, err := server.Client().Do(r)
		gone <- err
	}()
	until(t, "the queue is full", func() bool {
		res, err := queue.Peek(t.Context(), "k")
		return err == nil && res.Remaining == 0
	})
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	until(t, "its place is free", func() bool {
		res, err := queue.Peek(t.Context(), "k")
		return err == nil && res.Remaining == 1
	})
	if h.requests() != 1 {
		t.Errorf("%d are served", h.requests())
	}
}
