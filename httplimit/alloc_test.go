//go:build !race

package httplimit_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// reused is a ResponseWriter that serves many responses.
type reused struct{ h http.Header }

func (w *reused) Header() http.Header         { return w.h }
func (w *reused) Write(b []byte) (int, error) { return len(b), nil }
func (w *reused) WriteHeader(int)             {}

// The allocations of an admitted request, as in docs/http.md: the values of
// both fields with their array, and the key if it is built
// for the request. Items of RateLimit-Policy are formatted once. Several limits
// that are asked together also need the asks and the allocations of AllowAll: the
// difference between "together" and "two in turn". Each limiter has one place: in several, requests are marked.
func TestAllocations(t *testing.T) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	limiter := limittest.AllowAll()
	counted := func() hybridlimit.Limiter { return newLocal(t, "api", hybridlimit.PerSecond(1_000_000_000)) }
	for _, tc := range []struct {
		name string
		cfg  httplimit.Config
		key  httplimit.KeyFunc
		of   hybridlimit.Limiter
		want float64
	}{
		{"a key that is there", httplimit.Config{}, fixed("k"), counted(), 1},
		{"address", httplimit.Config{}, httplimit.PeerIP(), counted(), 2},
		{"API key", httplimit.Config{}, httplimit.APIKey("X-Api-Key", ""), counted(), 2},
		{"hidden", httplimit.Config{Hide: true}, fixed("k"), counted(), 0},
		{"no warning", httplimit.Config{WarnBelow: 0.2}, fixed("k"), counted(), 1},
		{"X-RateLimit", httplimit.Config{XRateLimit: true}, fixed("k"), counted(), 3},
		{"skipped", httplimit.Config{Skip: func(*http.Request) bool { return true }}, fixed("k"), limiter, 0},
	} {
		h := middleware(t, tc.cfg, httplimit.Limit{Limiter: tc.of, Key: tc.key})(handler)
		allocates(t, tc.name, h, tc.want)
	}
	more := newLocal(t, "more", hybridlimit.PerSecond(1_000_000_000))
	for name, tc := range map[string]struct {
		second hybridlimit.Limiter
		want   float64
	}{
		"two in turn":  {forgetful{}, 1},
		"two together": {more, 9},
	} {
		h := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: counted(), Key: fixed("k")}, httplimit.Limit{Limiter: tc.second, Key: fixed("k"), Name: "second"})(handler)
		allocates(t, name, h, tc.want)
	}
}

// forgetful admits everything and is not a Joint.
type forgetful struct{ hybridlimit.Limiter }

func (forgetful) AllowN(_ context.Context, _ string, n int64) (hybridlimit.Result, error) {
	return hybridlimit.Result{Allowed: true, Granted: n, Limit: 10, Remaining: 9, Source: hybridlimit.SourceRedis}, nil
}

// allocates fails if a request to h allocates more often than want.
func allocates(t *testing.T, name string, h http.Handler, want float64) {
	t.Helper()
	w := &reused{h: http.Header{}}
	r := request(header("X-Api-Key", "0123456789abcdef0123456789abcdef"))
	serve := func() {
		clear(w.h)
		h.ServeHTTP(w, r)
	}
	serve()
	if got := testing.AllocsPerRun(1000, serve); got > want {
		t.Errorf("%s: %v allocations a request, want %v", name, got, want)
	}
}
