package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

func Example() {
	limiter, err := local.New(hybridlimit.PerMinute(2), local.Config{Name: "api"}) // or of global, or of hybrid
	if err != nil {
		panic(err)
	}
	mw, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: limiter, Key: httplimit.PeerIP()})
	if err != nil {
		panic(err)
	}
	handler := mw(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		left, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=")
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), left, w.Header().Get("Retry-After") != "")
	}
	// Output:
	// 200 "api";q=2;w=60 "api";r=1 false
	// 200 "api";q=2;w=60 "api";r=0 false
	// 429 "api";q=2;w=60 "api";r=0 true
}

// Two limits: one per user, and one for all users together. A request that the
// first denies does not count for the second.
func ExampleNew_severalLimits() {
	perUser, err := local.New(hybridlimit.PerMinute(1), local.Config{Name: "user"})
	if err != nil {
		panic(err)
	}
	all, err := local.New(hybridlimit.PerSecond(100), local.Config{Name: "all"})
	if err != nil {
		panic(err)
	}
	mw, err := httplimit.New(httplimit.Config{},
		httplimit.Limit{Limiter: perUser, Key: httplimit.APIKey("X-Api-Key", "")},
		httplimit.Limit{Limiter: all, Key: httplimit.Everyone()})
	if err != nil {
		panic(err)
	}
	handler := mw(http.NotFoundHandler())

	for range 2 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Api-Key", "ann's")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.Join(w.Header().Values("RateLimit-Policy"), ", "))
	}
	// Output:
	// 404 "user";q=1;w=60, "all";q=100;w=1
	// 429 "user";q=1;w=60, "all";q=100;w=1
}

// The plan is a claim in the caller's token, which other middleware has checked and put into the context.
func ExampleLimit_of() {
	type claims struct{ User, Plan string }
	type token struct{}
	plans := map[string]hybridlimit.Limit{"gold": hybridlimit.PerMinute(600), "silver": hybridlimit.PerMinute(60)}

	limiter, err := local.New(hybridlimit.PerMinute(5), local.Config{Name: "api"}) // for callers without a plan
	if err != nil {
		panic(err)
	}
	mw, err := httplimit.New(httplimit.Config{}, httplimit.Limit{
		Limiter: limiter,
		Key:     func(r *http.Request) string { return r.Context().Value(token{}).(claims).User },
		Of: func(r *http.Request) (hybridlimit.Limit, bool) {
			limit, ok := plans[r.Context().Value(token{}).(claims).Plan]
			return limit, ok
		},
	})
	if err != nil {
		panic(err)
	}
	handler := mw(http.NotFoundHandler())

	for _, caller := range []claims{{"ann", "gold"}, {"bob", "silver"}, {"cid", ""}} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), token{}, caller)))
		fmt.Println(caller.User, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// ann "api";q=600;w=60
	// bob "api";q=60;w=60
	// cid "api";q=5;w=60
}

// Entries that the client wrote into the header do not count: only the entries of
// trusted proxies do.
func ExampleClientIP() {
	key, err := httplimit.ClientIP(httplimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")}})
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:443"
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 192.0.2.7, 10.0.0.2")
	fmt.Println(key(r))
	// Output: ip:192.0.2.7
}

// An upload costs a unit per MB. An upload without a Content-Length costs as much
// as the largest one. Denied requests get a custom answer.
func ExampleConfig() {
	limiter, err := local.New(hybridlimit.PerHour(10), local.Config{Name: "uploads"})
	if err != nil {
		panic(err)
	}
	mw, err := httplimit.New(httplimit.Config{
		Skip: func(r *http.Request) bool { return r.Method != http.MethodPost },
		Denied: func(w http.ResponseWriter, _ *http.Request, d httplimit.Denial) {
			http.Error(w, fmt.Sprintf("too many %v, come back later: %t", d.Policies, d.RetryAfter > 0), d.Status)
		},
	}, httplimit.Limit{
		Limiter: limiter, Key: httplimit.PeerIP(),
		Cost: func(r *http.Request) int64 {
			if r.ContentLength < 0 { // sent in chunks: it may be as long as any
				return 10
			}
			return 1 + r.ContentLength>>20
		},
	})
	if err != nil {
		panic(err)
	}
	handler := mw(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "stored") }))

	for _, chunked := range []bool{true, false, true} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 6<<20)))
		if chunked {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 stored
	// 429 too many [uploads], come back later: true
	// 429 too many [uploads], come back later: true
}

func ExampleNewTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("User-Agent") == "" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	transport, err := httplimit.NewTransport(httplimit.TransportConfig{MaxWait: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	r, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}
	r.Header["User-Agent"] = nil
	resp, err := client.Do(r)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode) // an hour is more than it may wait

	if _, err = client.Get(server.URL); err != nil { // not sent: the server wants none for an hour
		fmt.Println("the server wants no request now")
	}
	// Output:
	// 429
	// the server wants no request now
}

// The route decides the class of a request. Exports leave a fifth of the burst to
// payments. A route without a class is never critical.
func ExampleConfig_class() {
	limiter, err := local.New(hybridlimit.TokenBucket(1, time.Hour, 5), local.Config{
		Name:    "api",
		Classes: []local.Class{{Name: "export", Floor: 0.2}},
	})
	if err != nil {
		panic(err)
	}
	classes := map[string]string{"/payments": hybridlimit.ClassCritical, "/exports": "export"}
	mw, err := httplimit.New(httplimit.Config{
		Class: func(r *http.Request) string { return classes[r.URL.Path] },
	}, httplimit.Limit{Limiter: limiter, Key: httplimit.Everyone()})
	if err != nil {
		panic(err)
	}
	handler := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	for _, path := range []string{"/exports", "/exports", "/exports", "/other", "/exports", "/payments"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		quota, _, _ := strings.Cut(w.Header().Get("RateLimit-Policy"), ";w=")
		fmt.Println(path, w.Code, quota)
	}
	// Output:
	// /exports 200 "api";q=4
	// /exports 200 "api";q=4
	// /exports 200 "api";q=4
	// /other 200 "api";q=4
	// /exports 429 "api";q=4
	// /payments 200 "api";q=5
}
