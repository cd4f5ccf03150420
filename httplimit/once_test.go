package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// left returns the units that a key has left of 10.
func left(t *testing.T, l *local.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// otherKey is the key of another middleware in the context.
type otherKey struct{}

// A request that meets the same limit twice counts once, and its response has one item. It counted twice.
func TestSameLimitTwice(t *testing.T) {
	type wrap = func(http.Handler) http.Handler
	chain := func(h http.Handler, around ...wrap) http.Handler {
		for i := len(around) - 1; i >= 0; i-- {
			h = around[i](h)
		}
		return h
	}
	costs := func(n int64) func(*http.Request) int64 { return func(*http.Request) int64 { return n } }
	between := func(next http.Handler) http.Handler { // what other middleware and a mux do
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(context.WithValue(r.Context(), otherKey{}, 1))
			r.URL = new(*r.URL) // as http.StripPrefix
			next.ServeHTTP(w, r)
		})
		return mux
	}
	for name, tc := range map[string]struct {
		limits func(l, other hybridlimit.Limiter) []httplimit.Limit // one middleware for each
		again  bool                                                 // the first middleware once more
		left   int64
		items  int
	}{
		"the same middleware": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k")}}
			},
			again: true, left: 9, items: 1,
		},
		"two middlewares": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("k")}}
			},
			left: 9, items: 1,
		},
		"three": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("k")}}
			},
			again: true, left: 9, items: 1,
		},
		"another key": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("other")}}
			},
			left: 9, items: 2,
		},
		"another limiter": {
			limits: func(l, other hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: other, Key: fixed("k")}}
			},
			left: 9, items: 2,
		},
		"another name": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("k"), Name: "second"}}
			},
			left: 8, items: 2,
		},
		"a larger cost inside": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k"), Cost: costs(2)}, {Limiter: l, Key: fixed("k"), Cost: costs(5)}}
			},
			left: 5, items: 2,
		},
		"a smaller cost inside": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k"), Cost: costs(5)}, {Limiter: l, Key: fixed("k"), Cost: costs(2)}}
			},
			left: 5, items: 1,
		},
		"a free one around": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				return []httplimit.Limit{{Limiter: l, Key: fixed("k"), Cost: costs(0)}, {Limiter: l, Key: fixed("k")}}
			},
			left: 9, items: 1,
		},
		"another plan": {
			limits: func(l, _ hybridlimit.Limiter) []httplimit.Limit {
				plan := func(*http.Request) (hybridlimit.Limit, bool) { return hybridlimit.PerHour(10), true }
				return []httplimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("k"), Of: plan}}
			},
			left: 8, items: 2,
		},
	} {
		l, other := newLocal(t, "api", hybridlimit.PerHour(10)), newLocal(t, "other", hybridlimit.PerHour(10))
		var around []wrap
		for _, limit := range tc.limits(l, other) {
			around = append(around, middleware(t, httplimit.Config{}, limit), between)
		}
		if tc.again {
			around = append(around, around[0])
		}
		handler := &served{}
		resp := get(chain(handler, around...))
		if got := left(t, l, "k"); got != tc.left || len(resp.Header["Ratelimit-Policy"]) != tc.items || handler.requests() != 1 {
			t.Errorf("%s: %d left, want %d; RateLimit-Policy %q, want %d items; %d requests",
				name, got, tc.left, resp.Header["Ratelimit-Policy"], tc.items, handler.requests())
		}
		get(chain(handler, around...)) // another request counts
		if got := left(t, l, "k"); got != max(0, 2*tc.left-10) {
			t.Errorf("%s: %d left after two requests, want %d", name, got, 2*tc.left-10)
		}
	}
}

// Requests side by side count each, also while one of them is served, and after a panic. Those that a handler makes
// from the context of a request count as that one.
func TestSameLimitSideBySide(t *testing.T) {
	l := newLocal(t, "api", hybridlimit.PerHour(10))
	mw := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: fixed("k")})
	inner := mw(&served{})
	batch := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			inner.ServeHTTP(httptest.NewRecorder(), request())
			inner.ServeHTTP(w, r.Clone(r.Context()))
		}
	}))
	get(batch)
	if got := left(t, l, "k"); got != 6 {
		t.Errorf("%d left after a request, three of it and three others, want 6", got)
	}
	r, w := request(), httptest.NewRecorder()
	panics := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("handler") }))
	for range 2 {
		func() {
			defer func() { _ = recover() }()
			panics.ServeHTTP(w, r)
		}()
	}
	if got := left(t, l, "k"); got != 4 {
		t.Errorf("%d left after two panics, want 4", got)
	}
}

// A request holds one permit of a limit of calls in flight, and one place of a Shedder.
func TestPermitAndPlaceTwice(t *testing.T) {
	l, err := local.NewConcurrency(hybridlimit.Concurrent(1), local.ConcurrencyConfig{Name: "calls"})
	if err != nil {
		t.Fatal(err)
	}
	places, err := local.NewConcurrency(hybridlimit.Concurrent(1), local.ConcurrencyConfig{Name: "places"})
	if err != nil {
		t.Fatal(err)
	}
	class := func(*http.Request) string { return "" }
	mw := middleware(t, httplimit.Config{Shedder: shedderOf{places}, Class: class}, httplimit.Limit{Limiter: l, Key: fixed("k")})
	handler := &served{}
	h := mw(mw(handler))
	for range 3 {
		if resp := get(h); resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if handler.requests() != 3 {
		t.Errorf("%d requests", handler.requests())
	}
}

// shedderOf gives the places of a limiter.
type shedderOf struct{ of hybridlimit.Acquirer }

func (s shedderOf) Acquire(ctx context.Context, _ string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return s.of.AcquireN(ctx, "place", 1)
}

// again is a ResponseWriter of many responses.
type again struct {
	http.ResponseWriter
	h http.Header
}

func (w again) Header() http.Header { return w.h }

// The cost of a request by one middleware, by one of two that stand side by side, and by two around each other.
func BenchmarkPlaces(b *testing.B) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	limit := hybridlimit.PerSecond(1_000_000_000)
	for name, around := range map[string]func(mw func(http.Handler) http.Handler) http.Handler{
		"one":          func(mw func(http.Handler) http.Handler) http.Handler { return mw(handler) },
		"side by side": func(mw func(http.Handler) http.Handler) http.Handler { mw(handler); return mw(handler) },
		"nested":       func(mw func(http.Handler) http.Handler) http.Handler { return mw(mw(handler)) },
	} {
		b.Run(name, func(b *testing.B) {
			h := around(middleware(b, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(b, "api", limit), Key: fixed("k")}))
			w, r := again{httptest.NewRecorder(), http.Header{}}, request()
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, r)
			}
		})
	}
}
