package hybrid_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// SetFleetLimit changes the limit of all processes. The zero FleetLimit takes it back.
func ExampleLimiter_SetFleetLimit() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "api"})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := api.SetFleetLimit(ctx, hybrid.FleetLimit{Limit: hybridlimit.PerHour(500)}); err != nil {
		panic(err)
	}
	s := api.LimitState()
	fmt.Println(s.InForce, "from", s.Source)
	if err := api.SetFleetLimit(ctx, hybrid.FleetLimit{}); err != nil {
		panic(err)
	}
	fmt.Println(api.Limit())
	// Output:
	// 500 per 1h0m0s, burst 500 (token bucket) from fleet
	// 100 per 1h0m0s, burst 100 (token bucket)
}

// A limit of another algorithm is refused before anything changes: the use under one says
// nothing about the other.
func ExampleLimiter_SetFleetLimit_refused() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "api"})
	if err != nil {
		panic(err)
	}
	window, err := hybridlimit.ParseLimit("500/h fixed window")
	if err != nil {
		panic(err)
	}
	err = api.SetFleetLimit(context.Background(), hybrid.FleetLimit{Limit: window})
	fmt.Println(err, errors.Is(err, hybridlimit.ErrInvalid))
	// Output: hybrid: Limit.Algorithm (fixed window) must be the algorithm of the limiter, token bucket true
}

// A tool for operators tries a limit on a tenth of the keys. All processes choose the same
// keys.
func ExampleHub_SetFleetLimit() {
	hub, stop := newExampleHub() // without limiters it is no process of the fleet
	defer stop()
	canary := hybrid.FleetLimit{Limit: hybridlimit.PerHour(500), Part: 0.1}
	fmt.Println(hub.SetFleetLimit(context.Background(), "api", canary))
	// Output: <nil>
}

// All violations are in one error.
func ExampleHub_SetFleetLimit_invalid() {
	hub, stop := newExampleHub()
	defer stop()
	err := hub.SetFleetLimit(context.Background(), "api", hybrid.FleetLimit{Limit: hybridlimit.PerHour(0), Part: 2})
	fmt.Println(err)
	// Output: hybrid: Limit.Rate (0) must be at least 1; FleetLimit.Part (2) must be 0.0001 to 1, in steps of 0.0001, or 0 for 1
}

// FleetLimit returns the fleet's limit as Redis keeps it, for a limiter by its name.
func ExampleHub_FleetLimit() {
	hub, stop := newExampleHub()
	defer stop()
	ctx := context.Background()
	if err := hub.SetFleetLimit(ctx, "api", hybrid.FleetLimit{Limit: hybridlimit.PerHour(500), Part: 0.1}); err != nil {
		panic(err)
	}
	f, err := hub.FleetLimit(ctx, "api")
	fmt.Println(f.Limit, "for", f.Part, "of the keys,", err)
	// Output: 500 per 1h0m0s, burst 500 (token bucket) for 0.1 of the keys, <nil>
}

// A limiter without a limit of the fleet has the zero FleetLimit.
func ExampleHub_FleetLimit_none() {
	hub, stop := newExampleHub()
	defer stop()
	f, err := hub.FleetLimit(context.Background(), "login")
	fmt.Println(f.Limit == hybridlimit.Limit{}, f.At.IsZero(), err)
	// Output: true true <nil>
}
