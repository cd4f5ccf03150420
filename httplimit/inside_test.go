package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// frame is the context of a small framework.
type frame struct{ user string }

// TestInsideAFramework runs a limit by user and route, and a limit of calls in flight, in a framework that is not of net/http.
func TestInsideAFramework(t *testing.T) {
	running, err := local.NewConcurrency(hybridlimit.Concurrent(1), local.ConcurrencyConfig{Name: "running"})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	perUser := newLocal(t, "user", hybridlimit.PerHour(2))
	var keys []string
	key := httplimit.Join(httplimit.User("", func(r *http.Request) string { return httplimit.Framework[*frame](r).user }), httplimit.Pattern(nil))
	mw := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: perUser, Key: func(r *http.Request) string {
		keys = append(keys, key(r))
		return key(r)
	}}, httplimit.Limit{Limiter: running, Key: httplimit.Everyone()})
	call := func(user, route string, handler func(r *http.Request)) (status int, ran bool) {
		w := httptest.NewRecorder()
		ran = httplimit.Inside(mw, w, httptest.NewRequest(http.MethodGet, "/users/7", nil), route, &frame{user}, handler)
		return w.Code, ran
	}
	status, ran := call("ann", "/users/:id", func(r *http.Request) {
		if f := httplimit.Framework[*frame](r); f == nil || f.user != "ann" || r.Pattern != "/users/:id" {
			t.Errorf("the handler gets %+v, %q", f, r.Pattern)
		}
		// The permit is held until the handler returns.
		if status, ran := call("bob", "", func(*http.Request) {}); ran || status != http.StatusTooManyRequests {
			t.Errorf("a second call runs beside the first: %d", status)
		}
	})
	if !ran || status != http.StatusOK {
		t.Errorf("ran %v, status %d", ran, status)
	}
	if status, ran := call("ann", "/users/:id", func(*http.Request) {}); !ran || status != http.StatusOK {
		t.Errorf("after it, a call does not run: %d", status)
	}
	if status, ran := call("ann", "/users/:id", func(*http.Request) { t.Error("a denied call runs") }); ran || status != http.StatusTooManyRequests {
		t.Errorf("the third call of ann: ran %v, status %d", ran, status)
	}
	if len(keys) < 3 || keys[0] != "user:ann|route:/users/:id" || keys[1] != "user:bob|route:unmatched" {
		t.Errorf("keys %q", keys)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if f := httplimit.Framework[*frame](r); f != nil {
		t.Errorf("a request of no framework has %v", f)
	}
}

// A handler that panics releases its permit, and the panic goes on.
func TestInsideAPanic(t *testing.T) {
	running, err := local.NewConcurrency(hybridlimit.Concurrent(1), local.ConcurrencyConfig{Name: "running"})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	mw := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: running, Key: httplimit.Everyone()})
	for range 3 {
		func() {
			defer func() {
				if recover() != "broken" {
					t.Error("the panic was lost")
				}
			}()
			httplimit.Inside(mw, httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), "", nil, func(*http.Request) { panic("broken") })
		}()
	}
}
