package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Examples of leased rates: Hub.RateLeases.

// exampleRate returns a limiter of leased rates.
func exampleRate(limit hybridlimit.Limit) (rate *hybrid.RateLeaseLimiter, stop func()) {
	hub, stop := newExampleHub()
	rate, err := hub.RateLeases(limit, hybrid.RateLeaseConfig{Name: "hot"})
	if err != nil {
		panic(err)
	}
	return rate, stop
}

// A key that a large fleet uses all the time, with a burst of a second.
func ExampleHub_RateLeases() {
	hub, stop := newExampleHub()
	defer stop()
	limit := hybridlimit.TokenBucket(100_000, time.Second, 100_000)
	hot, err := hub.RateLeases(limit, hybrid.RateLeaseConfig{Name: "hot"})
	if err != nil {
		panic(err)
	}
	res, err := hot.Allow(context.Background(), "front-page")
	fmt.Println(res.Allowed, err)
	// Output: true <nil>
}

// Only the rates of buckets are leased.
func ExampleHub_RateLeases_window() {
	hub, stop := newExampleHub()
	defer stop()
	_, err := hub.RateLeases(hybridlimit.FixedWindow(100, time.Minute), hybrid.RateLeaseConfig{Name: "hot"})
	fmt.Println(errors.Is(err, hybridlimit.ErrInvalid))
	// Output: true
}

// Inspect says why a call would be admitted or denied.
func ExampleRateLeaseLimiter_Inspect() {
	rate, stop := exampleRate(hybridlimit.PerSecond(100))
	defer stop()
	i, err := rate.Inspect(context.Background(), "alice")
	fmt.Println(i.Outcome, err)
	// Output: ask <nil>
}
