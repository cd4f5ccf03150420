package hybrid_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// A tool for operators raises the limit of one user in all processes. The zero Limit takes
// it back.
func ExampleHub_SetFleetKeyLimit() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "api"})
	if err != nil {
		panic(err)
	}
	ctx, alice := context.Background(), clientkey.User("", "alice")
	for _, limit := range []hybridlimit.Limit{hybridlimit.PerHour(500), {}} {
		if err := hub.SetFleetKeyLimit(ctx, "api", alice, limit); err != nil {
			panic(err)
		}
		i, err := api.Inspect(ctx, alice)
		fmt.Println(i.Limit.BurstSize(), i.LimitFrom, err)
	}
	// Output:
	// 500 fleet_key <nil>
	// 100 config <nil>
}

// A limit of another algorithm is refused before anything changes.
func ExampleHub_SetFleetKeyLimit_refused() {
	hub, stop := newExampleHub()
	defer stop()
	if _, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "api"}); err != nil {
		panic(err)
	}
	err := hub.SetFleetKeyLimit(context.Background(), "api", "user:alice", hybridlimit.Concurrent(5))
	fmt.Println(errors.Is(err, hybridlimit.ErrInvalid))
	// Output: true
}

// FleetKeyLimits returns the keys with a limit of the fleet, sorted by key.
func ExampleHub_FleetKeyLimits() {
	hub, stop := newExampleHub() // without limiters it is no process of the fleet
	defer stop()
	ctx := context.Background()
	for _, user := range []string{"bob", "alice"} {
		if err := hub.SetFleetKeyLimit(ctx, "api", clientkey.User("", user), hybridlimit.PerHour(500)); err != nil {
			panic(err)
		}
	}
	all, err := hub.FleetKeyLimits(ctx, "api")
	for _, k := range all {
		fmt.Println(k.Key, k.Limit.Rate, err)
	}
	// Output:
	// user:alice 500 <nil>
	// user:bob 500 <nil>
}

// A limiter without such keys has none.
func ExampleHub_FleetKeyLimits_none() {
	hub, stop := newExampleHub()
	defer stop()
	all, err := hub.FleetKeyLimits(context.Background(), "login")
	fmt.Println(len(all), err)
	// Output: 0 <nil>
}
