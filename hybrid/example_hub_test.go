package hybrid_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Examples of many limits over one connection to a fleet: NewHub, Hub.Limiter.

// newExampleHub returns a hub on a Redis inside this program.
func newExampleHub() (h *hybrid.Hub, stop func()) {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	// The examples must print the same on a busy machine.
	h, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: quiet, SyncTimeout: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	return h, func() {
		_ = h.Close()
		_ = rdb.Close()
	}
}

func ExampleNewHub() {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Prefix: "shop", FleetSize: 20})
	if err != nil {
		panic(err)
	}
	defer hub.Shutdown(context.Background()) // pays the owed units of all its limiters

	login, err := hub.Limiter(hybridlimit.PerMinute(5), hybrid.Config{Name: "login", MaxWait: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	res, err := login.Allow(context.Background(), "alice")
	fmt.Println(res.Policy, res.Allowed, res.Remaining, err)
	// Output: login true 4 <nil>
}

// The error names every invalid field.
func ExampleNewHub_invalid() {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	_, err := hybrid.NewHub(rdb, hybrid.HubConfig{Prefix: "my shop", Tags: -1})
	fmt.Println(err)
	// Output: hybrid: HubConfig.Prefix ("my shop") must match [A-Za-z0-9_.-]{1,128}; HubConfig.Tags (-1) must be 1 to 16384, or 0 for 16
}

// A request passes several limits, each with its own mode. They share one sync
// engine, so one message to Redis can carry the syncs of several limits.
func ExampleHub_Limiter() {
	hub, stop := newExampleHub()
	defer stop()

	limiters := map[string]*hybrid.Limiter{}
	for name, what := range map[string]struct {
		limit hybridlimit.Limit
		mode  hybrid.Mode
	}{
		"per-user":   {hybridlimit.PerHour(100), hybrid.ModeAuto},
		"per-tenant": {hybridlimit.PerHour(10_000), hybrid.ModeDeferred},
		"payments":   {hybridlimit.SlidingLog(2, time.Hour), hybrid.ModeAuto},
	} {
		l, err := hub.Limiter(what.limit, hybrid.Config{Name: name, Mode: what.mode, MaxWait: 10 * time.Second})
		if err != nil {
			panic(err)
		}
		limiters[name] = l
	}
	for _, ask := range []struct{ name, key string }{{"per-user", "alice"}, {"per-tenant", "acme"}, {"payments", "alice"}} {
		res, err := limiters[ask.name].Allow(context.Background(), ask.key)
		fmt.Println(res.Policy, res.Allowed, res.Remaining, "of", res.Limit, err)
	}
	// Output:
	// per-user true 99 of 100 <nil>
	// per-tenant true 9999 of 10000 <nil>
	// payments true 1 of 2 <nil>
}

// A name identifies a limit. It is in use until its limiter is closed.
func ExampleHub_Limiter_name() {
	hub, stop := newExampleHub()
	defer stop()

	first, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "api"})
	if err != nil {
		panic(err)
	}
	_, err = hub.Limiter(hybridlimit.PerHour(200), hybrid.Config{Name: "api"})
	fmt.Println(err)
	if err := first.Close(); err != nil {
		panic(err)
	}
	_, err = hub.Limiter(hybridlimit.PerHour(200), hybrid.Config{Name: "api"})
	fmt.Println(err)
	// Output:
	// hybrid: Limit ("200 per 1h0m0s, burst 200 (token bucket)") differs from the limit of "api" with prefix "hl" that is in use already: 100 per 1h0m0s, burst 100 (token bucket); make one *hybrid.Hub, and share the limiter that Hub.Limiter returns
	// <nil>
}
