package hybrid_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// In an incident SwitchAllowAll admits every call, in every process that shares
// the limit.
func ExampleLimiter_SetFleetSwitch() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "api"})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := api.SetFleetSwitch(ctx, hybrid.SwitchAllowAll); err != nil {
		panic(err)
	}
	res, err := api.AllowN(ctx, "alice", 5000)
	fmt.Println(res.Allowed, res.Source, err)
	// Output: true switch <nil>
}

// A process may have its own switch. It wins over the fleet's switch until
// ClearSwitch removes it.
func ExampleLimiter_SetFleetSwitch_own() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.PerHour(100), hybrid.Config{Name: "api"})
	if err != nil {
		panic(err)
	}
	if err := api.SetFleetSwitch(context.Background(), hybrid.SwitchDenyAll); err != nil {
		panic(err)
	}
	if err := api.SetSwitch(hybrid.SwitchShadow); err != nil {
		panic(err)
	}
	fmt.Println(api.Switch())
	api.ClearSwitch()
	fmt.Println(api.Switch())
	// Output:
	// shadow true
	// deny_all false
}

// A tool for operators uses a hub without limiters, and so is not a process of
// the fleet. Its Prefix and Tags must be those of the fleet.
func ExampleHub_SetFleetSwitch() {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Prefix: "shop"})
	if err != nil {
		panic(err)
	}
	defer hub.Close()

	to, err := hybrid.ParseSwitch("local_only") // for example os.Args[1]
	if err != nil {
		panic(err)
	}
	fmt.Println(hub.SetFleetSwitch(context.Background(), "login", to))
	// Output: <nil>
}

// An unknown switch or an invalid name is refused before anything changes.
func ExampleHub_SetFleetSwitch_invalid() {
	hub, stop := newExampleHub()
	defer stop()
	_, err := hybrid.ParseSwitch("off")
	fmt.Println(err)
	err = hub.SetFleetSwitch(context.Background(), "my login", hybrid.SwitchNormal)
	fmt.Println(err, errors.Is(err, hybridlimit.ErrInvalid))
	// Output:
	// hybrid: Switch ("off") must be "normal", "shadow", "local_only", "allow_all" or "deny_all"
	// hybrid: limiter ("my login") must match [A-Za-z0-9_.-]{1,128} true
}

// FleetSwitch returns the fleet's switch, and the time at which it was set.
func ExampleHub_FleetSwitch() {
	hub, stop := newExampleHub()
	defer stop()
	ctx := context.Background()
	if err := hub.SetFleetSwitch(ctx, "login", hybrid.SwitchShadow); err != nil {
		panic(err)
	}
	s, at, err := hub.FleetSwitch(ctx, "login")
	fmt.Println(s, at.IsZero(), err)
	// Output: shadow false <nil>
}

// A limit that was never switched has the zero time.
func ExampleHub_FleetSwitch_never() {
	hub, stop := newExampleHub()
	defer stop()
	s, at, err := hub.FleetSwitch(context.Background(), "login")
	fmt.Println(s, at.IsZero(), err)
	// Output: normal true <nil>
}
