package httplimit_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// budget is 1000 units that do not come back in a test.
func budget(t *testing.T) *local.Limiter {
	t.Helper()
	l, err := local.New(hybridlimit.TokenBucket(1, 10*time.Hour, 1000), local.Config{Name: "budget"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func unitsLeft(t *testing.T, l *local.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err == nil && res.Source != hybridlimit.SourcePause {
		return res.Remaining
	}
	if res, err = l.Charge(t.Context(), key, 1); err != nil { // of a paused key, Peek knows only the pause
		t.Fatal(err)
	}
	if _, err := l.Refund(t.Context(), key, 1); err != nil {
		t.Fatal(err)
	}
	return res.Remaining + 1
}

// usage reads "used=n" at the end of a body.
func usage(_ *http.Response, body []byte) int64 {
	_, text, ok := strings.Cut(string(body), "used=")
	if n := int64(0); ok {
		if _, err := fmt.Sscan(text, &n); err == nil {
			return n
		}
	}
	return -1
}

// panics is a Used that panics.
func panics(*http.Response, []byte) int64 { panic("used") }

func withBody(r *http.Response, body string) *http.Response {
	r.Body = io.NopCloser(strings.NewReader(body))
	return r
}

// TestShareSettles takes 100 units for a request, and settles what it used at the end of its body.
func TestShareSettles(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for name, tc := range map[string]struct {
		resp  *http.Response // nil: an error
		used  func(*http.Response, []byte) int64
		close bool  // before the body is read
		want  int64 // units that stay used
	}{
		"less":                        {resp: withBody(response(200), "hello used=30"), used: usage, want: 30},
		"more":                        {resp: withBody(response(200), "hello used=250"), used: usage, want: 250},
		"none":                        {resp: withBody(response(200), "used=0"), used: usage, want: 0},
		"at the end of a long body":   {resp: withBody(response(200), long+"used=30"), used: usage, want: 30},
		"before the last 64 KB":       {resp: withBody(response(200), "used=30 "+long[:100_000]), used: usage, want: 100},
		"not known":                   {resp: withBody(response(200), "hello"), used: usage, want: 100},
		"closed before the end":       {resp: withBody(response(200), "used=30"), used: usage, close: true, want: 100},
		"no Used":                     {resp: response(200), want: 100},
		"a panic":                     {resp: response(200), used: panics, want: 100},
		"no body":                     {resp: &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, used: usage, want: 100},
		"from a field":                {resp: response(200, "X-Cost", "7"), used: func(r *http.Response, _ []byte) int64 { return int64(len(r.Header.Get("X-Cost"))) * 7 }, want: 7},
		"the server fails":            {resp: withBody(response(500), "used=2"), used: usage, want: 2},
		"refused":                     {resp: response(429, "Retry-After", "1000"), used: usage, want: 0},
		"refused with 403":            {resp: response(403, "Retry-After", "1000"), used: usage, want: 0},
		"forbidden":                   {resp: response(403), want: 100},
		"no time for it":              {resp: withBody(response(503, "Retry-After", "1000"), "used=3"), used: usage, want: 3},
		"an error, maybe after it":    {want: 100},
		"another protocol, no body":   {resp: response(101), want: 100},
		"all of it, by units beyond ": {resp: withBody(response(200), "used=1000"), used: usage, want: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			l := budget(t)
			var calls int
			used := tc.used
			if used != nil {
				used = func(r *http.Response, body []byte) int64 {
					calls++
					return tc.used(r, body)
				}
			}
			cfg := httplimit.TransportConfig{Shared: []httplimit.Share{{
				Limiter: l, Key: func(*http.Request) string { return "k" }, Cost: func(*http.Request) int64 { return 100 }, Used: used,
			}}}
			tr, b := newTransport(t, cfg, func(int, *http.Request) *http.Response {
				if got := unitsLeft(t, l, "k"); got != 900 {
					t.Errorf("%d units are left while the request runs, want 900", got)
				}
				return tc.resp
			})
			if tc.resp == nil {
				b.answer = func(int, *http.Request) *http.Response { return nil }
				cfg.Base = lostReply{}
				tr, _ = httplimit.NewTransport(cfg)
			}
			resp, err := send(t, tr, http.MethodGet, "")
			if (err != nil) != (tc.resp == nil) {
				t.Fatal(err)
			}
			if tc.resp != nil && tc.resp.StatusCode == 200 { // also if the body is never closed
				if got := unitsLeft(t, l, "k"); got != 900 {
					t.Errorf("%d units are left before the body is read, want 900", got)
				}
			}
			if resp != nil {
				func() {
					defer func() { _ = recover() }()
					if !tc.close {
						all, _ := io.ReadAll(resp.Body)
						if len(all) == 0 && tc.resp.StatusCode == 200 {
							t.Error("the body is empty")
						}
					}
					resp.Body.Close()
				}()
				resp.Body.Close()
			}
			if got := 1000 - unitsLeft(t, l, "k"); got != tc.want {
				t.Errorf("%d units stay used, want %d", got, tc.want)
			}
			if calls > 1 {
				t.Errorf("Used was called %d times", calls)
			}
		})
	}
}

// lostReply is a base that sends requests and gets no response.
type lostReply struct{}

func (lostReply) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("reset by peer")
}

// TestShareHears lowers the units of a Share to those that the server has left, by the fields of each form.
func TestShareHears(t *testing.T) {
	resp := func(fields ...string) *http.Response { return response(200, fields...) }
	for name, tc := range map[string]struct {
		unit   string
		resp   *http.Response
		window bool
		want   int64 // units left; 999: no field concerns the Share
	}{
		"RateLimit":               {resp: resp("RateLimit", `"a";r=40;t=100`), want: 40},
		"two policies":            {resp: resp("RateLimit", `"a";r=40;t=100, "b";r=20;t=9`), want: 20},
		"another qu":              {resp: resp("RateLimit", `"a";r=40;t=100`, "RateLimit-Policy", `"a";q=100;w=60;qu="content-bytes"`), want: 999},
		"that qu":                 {unit: "content-bytes", resp: resp("RateLimit", `"a";r=40;t=100`, "RateLimit-Policy", `"a";q=100;w=60;qu="content-bytes"`), want: 40},
		"draft 03":                {resp: resp("RateLimit-Remaining", "40", "RateLimit-Reset", "100"), want: 40},
		"X-RateLimit":             {resp: resp("X-RateLimit-Remaining", "40", "X-RateLimit-Reset", "100"), want: 40},
		"no reset":                {resp: resp("X-RateLimit-Remaining", "40"), want: 40},
		"a reset in the past":     {resp: resp("X-RateLimit-Remaining", "40", "X-RateLimit-Reset", "1000000001"), want: 999},
		"a reset in 1970":         {resp: resp("anthropic-ratelimit-requests-remaining", "40", "anthropic-ratelimit-requests-reset", "1970-01-01T00:00:00Z"), want: 999},
		"a reset of 10^30":        {resp: resp("X-RateLimit-Remaining", "40", "X-RateLimit-Reset", "1000000000000000000000000000000"), want: 999},
		"one of two resets":       {resp: resp("X-RateLimit-Remaining", "40", "X-RateLimit-Reset-After", "x", "X-RateLimit-Reset", "9"), want: 40},
		"a remaining of -1":       {resp: resp("X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "100"), want: 999},
		"a remaining of 1e30":     {resp: resp("X-RateLimit-Remaining", "1e30"), want: 999},
		"NaN":                     {resp: resp("X-RateLimit-Remaining", "NaN"), want: 999},
		"a larger remaining":      {resp: resp("X-RateLimit-Remaining", "4000", "X-RateLimit-Reset", "100"), want: 999},
		"Anthropic, requests":     {resp: resp("anthropic-ratelimit-requests-remaining", "40"), want: 40},
		"Anthropic, of tokens":    {unit: "tokens", resp: resp("anthropic-ratelimit-tokens-remaining", "40", "anthropic-ratelimit-requests-remaining", "3"), want: 40},
		"Anthropic, input":        {unit: "input-tokens", resp: resp("anthropic-ratelimit-input-tokens-remaining", "40", "anthropic-ratelimit-tokens-remaining", "3"), want: 40},
		"Anthropic, output":       {unit: "output-tokens", resp: resp("anthropic-ratelimit-output-tokens-remaining", "40"), want: 40},
		"OpenAI, requests":        {resp: resp("x-ratelimit-remaining-requests", "40", "x-ratelimit-reset-requests", "6m0s"), want: 40},
		"OpenAI, tokens":          {unit: "tokens", resp: resp("x-ratelimit-remaining-tokens", "40", "x-ratelimit-remaining-requests", "3"), want: 40},
		"other tokens":            {resp: resp("x-ratelimit-remaining-tokens", "40"), want: 999},
		"from a cache":            {resp: resp("X-RateLimit-Remaining", "40", "x-ratelimit-remaining-requests", "40", "Age", "3"), want: 999},
		"a window, at its end":    {window: true, resp: resp("X-RateLimit-Remaining", "40", "X-RateLimit-Reset", "1"), want: 39},
		"a window, 10 hours left": {window: true, resp: resp("X-RateLimit-Remaining", "40", "X-RateLimit-Reset", "1080000"), want: 10},
	} {
		t.Run(name, func(t *testing.T) {
			l := budget(t)
			tr, _ := newTransport(t, httplimit.TransportConfig{Shared: []httplimit.Share{{Unit: tc.unit, Limiter: l, Window: tc.window}}}, answers(tc.resp))
			got, err := send(t, tr, http.MethodGet, "")
			if err != nil {
				t.Fatal(err)
			}
			got.Body.Close()
			if left := unitsLeft(t, l, "http://api.test"); left != tc.want {
				t.Errorf("%d units are left, want %d", left, tc.want)
			}
		})
	}
}

// TestShareTakesOffWhatRuns has requests without a response when another response comes: the server may not have
// counted them. One whose response has come, and whose body runs, is counted.
func TestShareTakesOffWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := budget(t)
		gone := make(chan struct{})
		tr, err := httplimit.NewTransport(httplimit.TransportConfig{
			Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Slow") != "" {
					<-gone
				}
				return response(200, "X-RateLimit-Remaining", "500", "X-RateLimit-Reset", "100"), nil
			}),
			Shared: []httplimit.Share{{Limiter: l, Key: func(*http.Request) string { return "k" }, Cost: func(*http.Request) int64 { return 100 }}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var slow sync.WaitGroup
		call := func(slow string) *http.Response {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
			r.Header.Set("Slow", slow)
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Error(err)
			}
			return resp
		}
		for range 2 {
			slow.Go(func() { call("yes").Body.Close() })
		}
		synctest.Wait()
		resp := call("")
		if got := unitsLeft(t, l, "k"); got != 300 {
			t.Errorf("%d units are left, want 500 less 200 of the two that run", got)
		}
		close(gone)
		slow.Wait()
		again := call("")
		if got := unitsLeft(t, l, "k"); got != 200 {
			t.Errorf("%d units are left, want 200", got)
		}
		resp.Body.Close()
		again.Body.Close()
	})
}

// TestSeveralShares has two limits of one request: both are taken, or none.
func TestSeveralShares(t *testing.T) {
	requests, tokens := budget(t), budget(t)
	tr, _ := newTransport(t, httplimit.TransportConfig{MaxWait: -1, Shared: []httplimit.Share{
		{Limiter: requests, Key: func(*http.Request) string { return "r" }},
		{Unit: "tokens", Limiter: tokens, Key: func(*http.Request) string { return "t" }, Cost: func(*http.Request) int64 { return 600 }, Used: usage},
	}}, answers(withBody(response(200, "x-ratelimit-remaining-requests", "400", "x-ratelimit-remaining-tokens", "500"), "used=590")))
	resp, err := send(t, tr, http.MethodGet, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
	var busy *httplimit.BusyError
	for range 3 {
		if _, err := send(t, tr, http.MethodGet, ""); !errors.As(err, &busy) {
			t.Errorf("without tokens: %v", err)
		}
	}
	// 400 are left after the tokens were taken. 500 are more. 10 come back.
	if r, k := unitsLeft(t, requests, "r"), unitsLeft(t, tokens, "t"); r != 400 || k != 410 {
		t.Errorf("%d requests and %d tokens are left, want 400 and 410", r, k)
	}
}

// TestEndOfABodyConcurrent reads and closes a body at the same time. It is settled once.
func TestEndOfABodyConcurrent(t *testing.T) {
	l := budget(t)
	tr, _ := newTransport(t, httplimit.TransportConfig{Shared: []httplimit.Share{{
		Limiter: l, Key: func(*http.Request) string { return "k" }, Used: usage,
	}}}, func(int, *http.Request) *http.Response { return withBody(response(200), "used=2") })
	var all sync.WaitGroup
	for range 100 {
		resp, err := send(t, tr, http.MethodGet, "")
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { _, _ = io.Copy(io.Discard, resp.Body) })
		for range 2 {
			all.Go(func() { resp.Body.Close() })
		}
	}
	all.Wait()
	if got := 1000 - unitsLeft(t, l, "k"); got < 100 || got > 200 {
		t.Errorf("%d units are used of 100 requests, want 1 or 2 each", got)
	}
}

func TestBadShares(t *testing.T) {
	calls, err := local.NewConcurrency(hybridlimit.Concurrent(2), local.ConcurrencyConfig{Name: "calls"})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	_, err = httplimit.NewTransport(httplimit.TransportConfig{Backoff: -1, Shared: []httplimit.Share{{}, {Limiter: (*local.Limiter)(nil)}, {Limiter: calls}}})
	if !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Fatal(err)
	}
	for _, says := range []string{"TransportConfig.Backoff", "Shared[0].Limiter", "Shared[1].Limiter", "Shared[2].Limiter", "calls in flight"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}

// TestShareAfterAPanic has a Base that panics. Its request does not run any more, and keeps its estimate.
func TestShareAfterAPanic(t *testing.T) {
	l, first := budget(t), true
	tr, err := httplimit.NewTransport(httplimit.TransportConfig{
		Base: roundTrip(func(*http.Request) (*http.Response, error) {
			if first {
				first = false
				panic("oops")
			}
			return response(200, "X-RateLimit-Remaining", "500"), nil
		}),
		Shared: []httplimit.Share{{Limiter: l, Key: func(*http.Request) string { return "k" }, Cost: func(*http.Request) int64 { return 100 }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		send(t, tr, http.MethodGet, "")
	}()
	if got := unitsLeft(t, l, "k"); got != 900 {
		t.Errorf("%d units are left, want 900", got)
	}
	if _, err := send(t, tr, http.MethodGet, ""); err != nil {
		t.Error(err)
	}
	if got := unitsLeft(t, l, "k"); got != 500 {
		t.Errorf("%d units are left, want all that the server says", got)
	}
}

// TestShareOfSeveralBuckets has a server with two limits of one form. While the Transport knows of both, what is left
// of either says nothing.
func TestShareOfSeveralBuckets(t *testing.T) {
	l := budget(t)
	of := func(resource, left string) *http.Response {
		return response(200, "X-RateLimit-Remaining", left, "X-RateLimit-Reset", "100", "X-RateLimit-Resource", resource)
	}
	tr, _ := newTransport(t, httplimit.TransportConfig{Shared: []httplimit.Share{{Limiter: l}}},
		answers(of("core", "800"), of("search", "700"), of("core", "300"), of("search", "5")))
	for i, want := range []int64{800, 799, 798, 797} {
		if _, err := send(t, tr, http.MethodGet, ""); err != nil {
			t.Fatal(err)
		}
		if got := unitsLeft(t, l, "http://api.test"); got != want {
			t.Errorf("response %d: %d units are left, want %d", i, got, want)
		}
	}
}
