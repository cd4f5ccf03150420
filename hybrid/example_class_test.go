package hybrid_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Calls of the class "batch" leave a fifth of the burst. Payments find it.
func ExampleLimiter_Class() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.TokenBucket(1, time.Hour, 10), hybrid.Config{
		Name:    "api",
		Mode:    hybrid.ModeStrict,
		MaxWait: 10 * time.Second,
		Classes: []hybrid.Class{{Name: "batch", Floor: 0.2}},
	})
	if err != nil {
		panic(err)
	}
	batch, err := api.Class("batch")
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	res, err := batch.AllowN(ctx, "shop-17", 8)
	fmt.Println("batch:", res.Allowed, "limit", res.Limit, err)
	res, err = batch.Allow(ctx, "shop-17")
	fmt.Println("batch:", res.Allowed, err)
	res, err = api.AllowN(ctx, "shop-17", 2)
	fmt.Println("payment:", res.Allowed, err)
	// Output:
	// batch: true limit 8 <nil>
	// batch: false <nil>
	// payment: true <nil>
}

// A name that was not declared is an error.
func ExampleLimiter_Class_unknown() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.PerSecond(1000), hybrid.Config{
		Name:    "api",
		Classes: []hybrid.Class{{Name: "batch", Floor: 0.2}},
	})
	if err != nil {
		panic(err)
	}
	critical, err := api.Class(hybrid.ClassCritical)
	fmt.Println(critical == api, err)
	_, err = api.Class("bulk")
	fmt.Println(err)
	// Output:
	// true <nil>
	// hybrid: Class: name ("bulk") is no class of limiter "api"
}

// An adapter takes the name from a request. A name that is not known is never
// critical.
func ExampleLimiter_ForClass() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.PerSecond(1000), hybrid.Config{
		Name:    "api",
		Classes: []hybrid.Class{{Name: "batch", Floor: 0.2}},
	})
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"critical", "batch", "bulk"} {
		fmt.Println(name, api.ForClass(name).(*hybrid.Limiter).Policy("k").Limit.BurstSize())
	}
	// Output:
	// critical 1000
	// batch 800
	// bulk 800
}

// The floors of three classes: each leaves units to those above it.
func ExampleLimiter_ForClass_several() {
	hub, stop := newExampleHub()
	defer stop()
	api, err := hub.Limiter(hybridlimit.PerSecond(1000), hybrid.Config{
		Name:    "api",
		Classes: []hybrid.Class{{Name: "normal", Floor: 0.1}, {Name: "batch", Floor: 0.3}},
	})
	if err != nil {
		panic(err)
	}
	routes := map[string]string{"/pay": "critical", "/list": "normal", "/export": "batch"}
	for _, path := range []string{"/pay", "/list", "/export", "/admin"} {
		fmt.Println(path, api.ForClass(routes[path]).(*hybrid.Limiter).Policy("k").Limit.BurstSize())
	}
	// Output:
	// /pay 1000
	// /list 900
	// /export 700
	// /admin 700
}
