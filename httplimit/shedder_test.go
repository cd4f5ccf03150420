package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// gatekeeper is a Shedder that notes its calls.
type gatekeeper struct {
	asked []string // classes
	held  int
	shed  bool
	err   error
}

func (g *gatekeeper) Acquire(_ context.Context, class string) (hybridlimit.Permit, hybridlimit.Result, error) {
	g.asked = append(g.asked, class)
	switch {
	case g.err != nil:
		return hybridlimit.Permit{}, hybridlimit.Result{}, g.err
	case g.shed:
		return hybridlimit.Permit{}, hybridlimit.Result{Source: hybridlimit.SourceShed, RetryAfter: 2500 * time.Millisecond}, nil
	}
	g.held++
	return hybridlimit.NewPermit(g, 1), hybridlimit.Result{Allowed: true, Source: hybridlimit.SourceShed}, nil
}

// ReleasePermits implements hybridlimit.PermitHolder.
func (g *gatekeeper) ReleasePermits(n int64) { g.held -= int(n) }

// byPath is a Class.
func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// ask sends a request to h.
func ask(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestAShedRequest(t *testing.T) {
	limiter := newLocal(t, "api", hybridlimit.PerHour(2))
	g, s := &gatekeeper{shed: true}, &served{}
	var denial httplimit.Denial
	h := middleware(t, httplimit.Config{
		Shedder: g, Class: byPath,
		Denied: func(w http.ResponseWriter, r *http.Request, d httplimit.Denial) {
			denial = d
			httplimit.Problem(w, r, d)
		},
	}, httplimit.Limit{Limiter: limiter, Key: fixed("k")})(s)
	for range 3 { // more often than the limit has units: they come back
		w := ask(h, "/write")
		const problem = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503}` + "\n"
		if w.Code != 503 || w.Body.String() != problem || s.requests() != 0 {
			t.Errorf("%d %q", w.Code, w.Body)
		}
		h := w.Header()
		if h.Get("Retry-After") != "3" || h.Get("Cache-Control") != "no-store" || h.Get("RateLimit") != "" || h.Get("RateLimit-Policy") != "" {
			t.Errorf("%v", h)
		}
	}
	if denial.Status != 503 || denial.RetryAfter != 3*time.Second || denial.Err != nil || len(denial.Policies) > 0 || denial.Result.Source != hybridlimit.SourceShed {
		t.Errorf("%+v", denial)
	}
	if !slices.Equal(g.asked, []string{"write", "write", "write"}) {
		t.Errorf("asked for %q", g.asked)
	}
}

func TestTheShedderIsAskedLast(t *testing.T) {
	g, s := &gatekeeper{}, &served{}
	h := middleware(t, httplimit.Config{Shedder: g, Class: byPath, Skip: func(r *http.Request) bool { return r.URL.Path == "/health" }},
		httplimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerHour(1)), Key: fixed("k")})(s)
	for i, want := range []int{200, 429} {
		if w := ask(h, "/read"); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
	ask(h, "/health") // skipped
	if len(g.asked) != 1 || s.requests() != 2 {
		t.Errorf("asked for %q", g.asked)
	}
}

func TestThePlaceIsHeldUntilTheHandlerEnds(t *testing.T) {
	g := &gatekeeper{}
	cfg := httplimit.Config{Shedder: g, Class: byPath}
	for name, end := range map[string]func(){
		"return": func() {},
		"panic":  func() { panic(http.ErrAbortHandler) },
	} {
		h := middleware(t, cfg, httplimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("k")})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if g.held != 1 {
				t.Errorf("%s: %d places held in the handler", name, g.held)
			}
			end()
		}))
		func() {
			defer func() { recover() }()
			ask(h, "/read")
		}()
		if g.held != 0 {
			t.Errorf("%s: %d places held after the handler", name, g.held)
		}
	}
}

// A shedder inside another middleware takes the units left out of the response, as
// every answer of 503 does.
func TestAShedRequestInAnotherMiddleware(t *testing.T) {
	outer := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerHour(2)), Key: fixed("k")})
	inner := middleware(t, httplimit.Config{Shedder: &gatekeeper{shed: true}, Class: byPath})
	h := ask(outer(inner(&served{})), "/read").Header()
	if h.Get("RateLimit") != "" || h.Get("RateLimit-Policy") == "" || h.Get("Retry-After") != "3" {
		t.Errorf("%v", h)
	}
}

// A Shedder without limits, and one for requests without a key.
func TestAShedderWithoutLimits(t *testing.T) {
	for name, limits := range map[string][]httplimit.Limit{
		"no limit": nil,
		"no key":   {{Limiter: limittest.AllowAll(), Key: fixed("")}},
	} {
		g, s := &gatekeeper{}, &served{}
		h := middleware(t, httplimit.Config{Shedder: g, Class: byPath, NoKey: httplimit.NoKeyPass}, limits...)(s)
		if w := ask(h, "/read"); w.Code != 200 || g.held != 0 || len(g.asked) != 1 {
			t.Errorf("%s: %d, %+v", name, w.Code, g)
		}
		g.shed = true
		if w := ask(h, "/read"); w.Code != 503 || s.requests() != 1 {
			t.Errorf("%s: shed %d", name, w.Code)
		}
	}
}

func TestAShedderThatFails(t *testing.T) {
	for _, tc := range []struct {
		err     error
		failure httplimit.Failure
		want    int
	}{
		{hybridlimit.ErrClosed, httplimit.FailClosed, 503},
		{hybridlimit.ErrClosed, httplimit.FailOpen, 200},
		{errors.New("another"), httplimit.FailOpen, 503},
	} {
		var log lines
		limiter := newLocal(t, "api", hybridlimit.PerHour(1))
		h := middleware(t, httplimit.Config{Shedder: &gatekeeper{err: tc.err}, Class: byPath, Failure: tc.failure, Logger: log.logger()},
			httplimit.Limit{Limiter: limiter, Key: fixed("k")})(&served{})
		if w := ask(h, "/read"); w.Code != tc.want || log.count() != 1 {
			t.Errorf("%v, %v: %d, want %d; log: %s", tc.err, tc.failure, w.Code, tc.want, log.String())
		}
		res, err := limiter.PeekN(t.Context(), "k", 1)
		if back := tc.want == 503; err != nil || res.Allowed != back {
			t.Errorf("%v, %v: the unit is back: %v, want %v", tc.err, tc.failure, res.Allowed, back)
		}
	}
}

func TestShedderViolations(t *testing.T) {
	var none *gatekeeper
	_, err := httplimit.New(httplimit.Config{Shedder: none})
	const want = "httplimit: Config.Shedder (<nil>) must not be a nil pointer; Config.Class (<nil>) is required with Config.Shedder"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if _, err := httplimit.New(httplimit.Config{Class: byPath}); err == nil || !strings.Contains(err.Error(), `limits ("none")`) {
		t.Errorf("neither limits nor a shedder: %v", err)
	}
}
