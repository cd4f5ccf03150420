package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// plans has the existing API keys, as a database would. A caller with an
// unknown key is anonymous, so made-up keys have no advantage.
var plans = map[string]string{"free-ann": "free", "free-cid": "free", "pro-bob": "pro"}

func plan(r *http.Request) string { return plans[r.Header.Get("X-Api-Key")] }

// newService returns the service with its limits.
func newService(hub *hybrid.Hub) (http.Handler, error) {
	var err error
	limiter := func(name string, limit hybridlimit.Limit) *hybrid.Limiter {
		l, e := hub.Limiter(limit, hybrid.Config{Name: name, MaxWait: 100 * time.Millisecond})
		if e != nil && err == nil {
			err = e
		}
		return l
	}
	service := limiter("service", hybridlimit.PerSecond(1000))
	anonymous := limiter("anonymous", hybridlimit.PerMinute(5))
	free := limiter("free", hybridlimit.PerMinute(20))
	pro := limiter("pro", hybridlimit.TokenBucket(600, time.Minute, 100))
	report := limiter("report", hybridlimit.PerMinute(3))
	if err != nil {
		return nil, err
	}

	who := func(wanted string) func(*http.Request) bool {
		return func(r *http.Request) bool { return plan(r) == wanted }
	}
	// Callers can make up any number of unchecked keys. So only existing keys have limits of their own.
	apiKey := httplimit.When(func(r *http.Request) bool { return plan(r) != "" }, httplimit.APIKey("X-Api-Key", ""))
	// Behind your own proxies, use httplimit.ClientIP with their networks.
	address := httplimit.PeerIP()

	// All limits that apply to a request are asked at once. If one of them denies, none is charged.
	tiers, err := httplimit.New(
		httplimit.Config{Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" }},
		httplimit.Limit{Limiter: service, Key: httplimit.Everyone()},
		httplimit.Limit{Limiter: anonymous, Key: httplimit.When(who(""), address)},
		httplimit.Limit{Limiter: free, Key: httplimit.When(who("free"), apiKey)},
		httplimit.Limit{Limiter: pro, Key: httplimit.When(who("pro"), apiKey)})
	if err != nil {
		return nil, err
	}
	// A further limit for one route, by caller and route.
	dear, err := httplimit.New(httplimit.Config{}, httplimit.Limit{
		Limiter: report, Key: httplimit.Join(httplimit.First(apiKey, address), httplimit.Pattern(nil)), Bucket: "reports",
	})
	if err != nil {
		return nil, err
	}

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux := http.NewServeMux()
	mux.Handle("GET /", hello)
	mux.Handle("GET /healthz", hello)
	mux.Handle("GET /report", dear(hello))
	return tiers(mux), nil
}
