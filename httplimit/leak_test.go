package httplimit_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// onLog is a log handler that calls f.
type onLog struct{ f func() }

func (onLog) Enabled(context.Context, slog.Level) bool    { return true }
func (h onLog) Handle(context.Context, slog.Record) error { h.f(); return nil }
func (h onLog) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h onLog) WithGroup(string) slog.Handler             { return h }

// TestPermitsAreNotLost checks that no permit and no unit stays taken, whenever a client leaves and whatever panics. Cause: with
// FailOpen the middleware asked twice whether a request goes on although a limiter could not decide. A client that left in between
// kept its permit for ever.
func TestPermitsAreNotLost(t *testing.T) {
	for _, policy := range []httplimit.Failure{httplimit.FailOpen, httplimit.FailClosed} {
		for name, onLine := range map[string]func(cancel func()){
			"leaves when the failure is logged": func(cancel func()) { cancel() },
			"the logger panics":                 func(func()) { panic("a bug") },
		} {
			calls := inFlight(t, 5, local.ConcurrencyConfig{})
			rate, err := local.New(hybridlimit.TokenBucket(1, time.Hour, 5), local.Config{Name: "rate"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			mw := middleware(t, httplimit.Config{Failure: policy, Logger: slog.New(onLog{func() { onLine(cancel) }})},
				httplimit.Limit{Limiter: calls, Key: one}, httplimit.Limit{Limiter: rate, Key: one},
				httplimit.Limit{Limiter: failure{hybridlimit.ErrUnavailable}, Name: "broken", Key: one})
			served := 0
			h := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
			for range 4 {
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
				}()
			}
			cancel()
			if n := calls.Running("k"); n != 0 {
				t.Errorf("%v, %s: %d permits are held", policy, name, n)
			}
			res, err := rate.Peek(t.Context(), "k")
			if err != nil || res.Remaining != int64(5-served) {
				t.Errorf("%v, %s: %d units are left after %d served requests, %v", policy, name, res.Remaining, served, err)
			}
		}
	}
}

// TestHijackThenPanic checks that a handler that takes the connection over and panics keeps no permit.
func TestHijackThenPanic(t *testing.T) {
	l := inFlight(t, 1, local.ConcurrencyConfig{})
	h := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: one})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	}))
	ended := make(chan struct{}, 3)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	for range 3 {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		<-ended
		free(t, l)
	}
}
