//go:build search

package frameworks

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// each runs a test with every framework.
func each(t *testing.T, test func(t *testing.T, f stack)) {
	for _, f := range stacks {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

// limit returns a middleware with one limit.
func limit(t *testing.T, l hybridlimit.Limiter, key httplimit.KeyFunc) func(http.Handler) http.Handler {
	t.Helper()
	mw, err := httplimit.New(httplimit.Config{Logger: slog.New(slog.DiscardHandler)}, httplimit.Limit{Limiter: l, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

// bucket returns a limiter of n calls an hour.
func bucket(t *testing.T, name string, n int64) hybridlimit.Limiter {
	t.Helper()
	l, err := local.New(hybridlimit.PerHour(n), local.Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request with a user and two lines of one field.
func send(t *testing.T, method, url, user, body string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(userHeader, user)
	r.Header["X-Test"] = []string{"a", "b"}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: string(text)}
}

func TestAdmittedAndDenied(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		s := &site{limits: []func(http.Handler) http.Handler{limit(t, bucket(t, "api", 2), httplimit.PeerIP())}}
		url := f.start(t, s) + "/users/1"
		for _, remaining := range []string{`"api";r=1`, `"api";r=0`} {
			got := send(t, http.MethodGet, url, "alice", "")
			if got.status != http.StatusOK || got.body != "user 1 a,b" || got.header.Get("X-Handler") != "yes" {
				t.Errorf("admitted: %+v", got)
			}
			if policy := got.header.Values("RateLimit-Policy"); !slices.Equal(policy, []string{`"api";q=2;w=3600`}) {
				t.Errorf("RateLimit-Policy: %q", policy)
			}
			if fields := got.header.Values("RateLimit"); len(fields) != 1 || !strings.HasPrefix(fields[0], remaining) {
				t.Errorf("RateLimit: %q, want %q", fields, remaining)
			}
		}
		got := send(t, http.MethodGet, url, "alice", "")
		if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" || got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("denied: %+v", got)
		}
		if media := got.header.Values("Content-Type"); !slices.Equal(media, []string{"application/problem+json"}) {
			t.Errorf("Content-Type: %q", media)
		}
		var problem struct {
			Type     string
			Status   int
			Policies []string `json:"violated-policies"`
		}
		if err := json.Unmarshal([]byte(got.body), &problem); err != nil || problem.Type != httplimit.TypeQuotaExceeded || problem.Status != 429 || !slices.Equal(problem.Policies, []string{"api"}) {
			t.Errorf("%v in %q: %+v", err, got.body, problem)
		}
		if later, ran := s.calls(); later != 2 || ran != 2 {
			t.Errorf("two requests were admitted: the middleware after the limit ran %d times, the handler %d times", later, ran)
		}
	})
}

// TestKeysSeeTheContext checks the key functions of docs/http.md.
func TestKeysSeeTheContext(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		for name, c := range map[string]struct {
			key  httplimit.KeyFunc
			want []string // for /users/1 of alice, /users/2 of alice, /users/2 of bob
		}{
			"address":   {httplimit.PeerIP(), []string{"ip:127.0.0.1", "ip:127.0.0.1", "ip:127.0.0.1"}},
			"route":     {httplimit.Pattern(nil), []string{"route:" + f.route, "route:" + f.route, "route:" + f.route}},
			"user":      {f.user, []string{"alice", "alice", "bob"}},
			"parameter": {f.id, []string{"1", "2", "2"}},
		} {
			recorder := limittest.Record(limittest.AllowAll())
			url := f.start(t, &site{limits: []func(http.Handler) http.Handler{limit(t, recorder, c.key)}})
			send(t, http.MethodGet, url+"/users/1", "alice", "")
			send(t, http.MethodGet, url+"/users/2?x=1", "alice", "")
			send(t, http.MethodGet, url+"/users/2", "bob", "")
			if got := recorder.Keys(); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	})
}

// TestInventedPathsShareAKey checks that a client cannot choose the key of a route.
func TestInventedPathsShareAKey(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		recorder := limittest.Record(limittest.AllowAll())
		url := f.start(t, &site{limits: []func(http.Handler) http.Handler{limit(t, recorder, httplimit.Pattern(nil))}})
		for _, path := range []string{"/none", "/other/1", "/users", "/nine%2Fpaths", "/usersx/1"} {
			if got := send(t, http.MethodGet, url+path, "alice", ""); got.status != http.StatusNotFound {
				t.Errorf("%s: %d", path, got.status)
			}
		}
		want := 0
		if f.limitsUnmatched {
			want = 5
		}
		keys := recorder.Keys()
		if wanted := slices.Repeat([]string{"route:unmatched"}, want); !slices.Equal(keys, wanted) {
			t.Errorf("%q, want %q", keys, wanted)
		}
		recorder.Reset()
		for _, method := range []string{http.MethodPut, http.MethodPatch, "INVENTED"} {
			if got := send(t, method, url+"/users/1", "alice", ""); got.status/100 == 2 {
				t.Errorf("%s: %d", method, got.status)
			}
		}
		for _, key := range recorder.Keys() {
			if key != "route:"+f.route && key != "route:unmatched" {
				t.Errorf("another method: %q", key)
			}
		}
	})
}

func TestPanicsReachTheRecovery(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		s := &site{limits: []func(http.Handler) http.Handler{limit(t, limittest.AllowAll(), func(r *http.Request) string {
			if r.Header.Get(userHeader) == "mallory" {
				panic("key")
			}
			return "*"
		})}}
		url := f.start(t, s)
		if got := send(t, http.MethodGet, url+"/panic", "alice", ""); got.status != http.StatusInternalServerError {
			t.Errorf("panic of a handler: %d", got.status)
		}
		if got := send(t, http.MethodGet, url+"/users/1", "mallory", ""); got.status != http.StatusInternalServerError {
			t.Errorf("panic of a key function: %d", got.status)
		}
		if got := s.panics(); !strings.Contains(got, "boom") || !strings.Contains(got, "key") {
			t.Errorf("recovered: %s", got)
		}
		if _, ran := s.calls(); ran != 0 {
			t.Error("the handler ran after the panic of the key function")
		}
	})
}

func TestStreamsAndBodies(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		s := &site{limits: []func(http.Handler) http.Handler{limit(t, bucket(t, "api", 100), httplimit.PeerIP())}, release: make(chan struct{})}
		url := f.start(t, s)
		if got := send(t, http.MethodPost, url+"/body", "alice", "a body"); got.status != http.StatusOK || got.body != "a body" {
			t.Errorf("body: %+v", got)
		}

		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/stream", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		first := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "one" { // waits for ever if the response is held back
			t.Errorf("%q, %v", first, err)
		}
		close(s.release)
		if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "two" {
			t.Errorf("%q, %v", rest, err)
		}
		if resp.Header.Get("RateLimit") == "" {
			t.Error("a stream has no RateLimit")
		}
		if f.hijacks {
			if got := send(t, http.MethodGet, url+"/hijack", "alice", ""); got.body != "hijacked" {
				t.Errorf("hijack: %+v", got)
			}
		}
	})
}

// failing is a limiter without a decision.
type failing struct{}

func (failing) Allow(context.Context, string) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, hybridlimit.ErrUnavailable
}

func (f failing) AllowN(ctx context.Context, key string, _ int64) (hybridlimit.Result, error) {
	return f.Allow(ctx, key)
}

func TestNoDecisionIs503(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		s := &site{limits: []func(http.Handler) http.Handler{limit(t, failing{}, httplimit.PeerIP())}}
		got := send(t, http.MethodGet, f.start(t, s)+"/users/1", "alice", "")
		if got.status != http.StatusServiceUnavailable || got.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(got.body, httplimit.TypeReducedCapacity) {
			t.Errorf("%+v", got)
		}
		if later, ran := s.calls(); later != 0 || ran != 0 {
			t.Errorf("calls behind the limit: %d, %d", later, ran)
		}
	})
}

// TestOneInsideTheOther checks that both middleware write their fields, and that a
// denial of the inner one removes the remaining units of the outer one.
func TestOneInsideTheOther(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		s := &site{limits: []func(http.Handler) http.Handler{
			limit(t, bucket(t, "outer", 10), httplimit.Everyone()),
			limit(t, bucket(t, "inner", 1), httplimit.PeerIP()),
		}}
		url := f.start(t, s) + "/users/1"
		got := send(t, http.MethodGet, url, "alice", "")
		if fields := strings.Join(got.header.Values("RateLimit"), ", "); got.status != http.StatusOK || strings.Count(fields, `"outer";r=9`) != 1 || strings.Count(fields, `"inner";r=0`) != 1 {
			t.Errorf("admitted: %d, %q", got.status, fields)
		}
		got = send(t, http.MethodGet, url, "alice", "")
		if fields := strings.Join(got.header.Values("RateLimit"), ", "); got.status != http.StatusTooManyRequests || strings.Contains(fields, "outer") || !strings.Contains(fields, `"inner";r=0`) {
			t.Errorf("denied: %d, %q", got.status, fields)
		}
		if _, ran := s.calls(); ran != 1 {
			t.Errorf("the handler ran %d times", ran)
		}
	})
}

// TestQueuesDelay checks that a leaky queue delays the handler.
func TestQueuesDelay(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		const delay = 50 * time.Millisecond
		queue := limittest.Play(hybridlimit.Result{Allowed: true, Granted: 1, Delay: delay, Source: hybridlimit.SourceLocal})
		url := f.start(t, &site{limits: []func(http.Handler) http.Handler{limit(t, queue, httplimit.PeerIP())}})
		start := time.Now()
		if got := send(t, http.MethodGet, url+"/users/1", "alice", ""); got.status != http.StatusOK {
			t.Errorf("%+v", got)
		}
		if took := time.Since(start); took < delay {
			t.Errorf("after %v, want %v", took, delay)
		}
	})
}

// TestPermitsAreHeldByTheHandler checks that a limit of calls in flight holds its permit until the rest of the chain has returned. The
// adapter of fiber ran the rest after the middleware, so a permit was free before the handler began.
func TestPermitsAreHeldByTheHandler(t *testing.T) {
	each(t, func(t *testing.T, f stack) {
		running, err := local.NewConcurrency(hybridlimit.Concurrent(1), local.ConcurrencyConfig{Name: "running"})
		if err != nil {
			t.Fatal(err)
		}
		defer running.Close()
		mw, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: running, Key: httplimit.Everyone()})
		if err != nil {
			t.Fatal(err)
		}
		free := 0
		probe := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if permit, res, err := running.Acquire(r.Context(), httplimit.Everyone()(r)); err != nil || res.Allowed {
					permit.Release()
					free++
				}
				next.ServeHTTP(w, r)
			})
		}
		url := f.start(t, &site{limits: []func(http.Handler) http.Handler{mw, probe}}) + "/users/1"
		for range 3 {
			if got := send(t, http.MethodGet, url, "alice", ""); got.status != http.StatusOK {
				t.Errorf("a call alone: %+v", got)
			}
		}
		if free > 0 {
			t.Errorf("the permit was free while the handler ran, %d of 3 times", free)
		}
	})
}
