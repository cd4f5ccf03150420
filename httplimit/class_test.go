package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// classed is a limiter with two classes. An unknown name is of the second one, as adapter.Classer says.
type classed struct {
	*local.Limiter

	rest *local.Limiter
}

func (c classed) ForClass(name string) hybridlimit.Limiter {
	if name == "critical" {
		return c.Limiter
	}
	return c.rest
}

// TestClass checks that a request of a class is asked for by its view: the answer, the fields, and the units given back.
func TestClass(t *testing.T) {
	api := classed{newLocal(t, "api", hybridlimit.TokenBucket(1, time.Hour, 5)), newLocal(t, "api", hybridlimit.TokenBucket(1, time.Hour, 3))}
	plain := newLocal(t, "all", hybridlimit.TokenBucket(1, time.Hour, 100))
	asked := 0
	class := func(r *http.Request) string {
		asked++
		return strings.TrimPrefix(r.URL.Path, "/")
	}
	h := middleware(t, httplimit.Config{Class: class},
		httplimit.Limit{Limiter: api, Key: fixed("k")}, httplimit.Limit{Limiter: plain, Key: fixed("k")})(&served{})
	for i, step := range []struct {
		path   string
		status int
		policy string
	}{
		{"/batch", 200, `"api";q=3`},
		{"/critical", 200, `"api";q=5`},
		{"/admin", 200, `"api";q=3`},
		{"/", 200, `"api";q=3`},
		{"/batch", 429, `"api";q=3`},
		{"/critical", 200, `"api";q=5`},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, step.path, nil))
		if got := strings.Join(w.Header().Values("RateLimit-Policy"), ", "); w.Code != step.status || !strings.Contains(got, step.policy) {
			t.Errorf("request %d of %s: %d with %q, want %d with %s", i, step.path, w.Code, got, step.status, step.policy)
		}
		if asked != i+1 {
			t.Errorf("after %d requests with two limits, Class was called %d times", i+1, asked)
		}
	}
	for name, want := range map[*local.Limiter]int64{api.Limiter: 3, api.rest: 0, plain: 95} {
		if res, err := name.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
			t.Errorf("%s of burst %d has %d units left, want %d: %v", name.Name(), res.Limit, res.Remaining, want, err)
		}
	}
	for _, step := range []string{"/critical", "/batch"} { // without Class
		w := httptest.NewRecorder()
		middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: api, Key: fixed("j")})(&served{}).
			ServeHTTP(w, httptest.NewRequest(http.MethodGet, step, nil))
		if got := w.Header().Get("RateLimit-Policy"); !strings.Contains(got, "q=5") {
			t.Errorf("without Class, %s got %q", step, got)
		}
	}
}
