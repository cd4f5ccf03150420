package httplimit_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// lines is a log for a test to read.
type lines struct{ strings.Builder }

func (l *lines) count() int { return strings.Count(l.String(), "\n") }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// served is a handler that counts its requests.
type served struct{ n atomic.Int64 }

func (s *served) requests() int { return int(s.n.Load()) }

func (s *served) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.n.Add(1)
	w.Write([]byte("served"))
}

// middleware calls New, and fails the test if New fails.
func middleware(t testing.TB, cfg httplimit.Config, limits ...httplimit.Limit) func(http.Handler) http.Handler {
	t.Helper()
	mw, err := httplimit.New(cfg, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

// newLocal returns a local limiter with a name.
func newLocal(t testing.TB, name string, limit hybridlimit.Limit) *local.Limiter {
	t.Helper()
	l, err := local.New(limit, local.Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// failing is a limiter that always returns one error and no decision.
func failing(err error) hybridlimit.Limiter { return failure{err} }

type failure struct{ err error }

func (f failure) Allow(context.Context, string) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, f.err
}

func (f failure) AllowN(context.Context, string, int64) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, f.err
}

// get sends a request through a handler, after the functions have changed it.
func get(h http.Handler, alter ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, f := range alter {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// fixed returns one key for all requests.
func fixed(key string) httplimit.KeyFunc { return func(*http.Request) string { return key } }
