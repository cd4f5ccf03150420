package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Examples of the verbs that change a limiter of calls in flight, or end it.

func ExampleConcurrencyLimiter_SetLimit() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
	defer stop()
	err := calls.SetLimit(hybridlimit.Concurrent(5))
	fmt.Println(calls.Limit(), err)
	fmt.Println(calls.ClearLimit(), calls.Limit())
	// Output:
	// 5 concurrent <nil>
	// <nil> 10 concurrent
}

// Blocked stops all new calls. Running calls go on.
func ExampleConcurrencyLimiter_SetLimit_blocked() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
	defer stop()
	if err := calls.SetLimit(hybridlimit.Blocked()); err != nil {
		panic(err)
	}
	_, res, err := calls.Acquire(context.Background(), "alice")
	fmt.Println(res.Allowed, err)
	// Output: false <nil>
}

// All processes of the fleet get the limit with a heartbeat.
func ExampleConcurrencyLimiter_SetFleetLimit() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
	defer stop()
	err := calls.SetFleetLimit(context.Background(), hybrid.FleetLimit{Limit: hybridlimit.Concurrent(7)})
	state := calls.LimitState()
	fmt.Println(state.InForce, state.Source, err)
	// Output: 7 concurrent fleet <nil>
}

// A rate is not a limit of calls in flight.
func ExampleConcurrencyLimiter_SetFleetLimit_rate() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
	defer stop()
	err := calls.SetFleetLimit(context.Background(), hybrid.FleetLimit{Limit: hybridlimit.PerSecond(7)})
	fmt.Println(errors.Is(err, hybridlimit.ErrInvalid), calls.Limit())
	// Output: true 10 concurrent
}

// Under SwitchAllowAll no limit counts, in the whole fleet.
func ExampleConcurrencyLimiter_SetFleetSwitch() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(1), hybrid.ConcurrencyConfig{})
	defer stop()
	if err := calls.SetFleetSwitch(context.Background(), hybrid.SwitchAllowAll); err != nil {
		panic(err)
	}
	permit, res, err := calls.AcquireN(context.Background(), "alice", 50)
	fmt.Println(res.Allowed, res.Source, err)
	permit.Release()
	// Output: true switch <nil>
}

// SwitchDenyAll stops new calls until SwitchNormal.
func ExampleConcurrencyLimiter_SetFleetSwitch_denyAll() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(1), hybrid.ConcurrencyConfig{})
	defer stop()
	for _, s := range []hybrid.Switch{hybrid.SwitchDenyAll, hybrid.SwitchNormal} {
		if err := calls.SetFleetSwitch(context.Background(), s); err != nil {
			panic(err)
		}
		permit, res, err := calls.Acquire(context.Background(), "alice")
		fmt.Println(s, res.Allowed, err)
		permit.Release()
	}
	// Output:
	// deny_all false <nil>
	// normal true <nil>
}

// A readiness probe waits until the process knows its fleet.
func ExampleConcurrencyLimiter_Ready() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(calls.Ready(ctx))
	// Output: <nil>
}

func ExampleConcurrencyLimiter_Ready_closed() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
	defer stop()
	calls.Close()
	fmt.Println(calls.Ready(context.Background()))
	// Output: hybridlimit: limiter is closed
}

// Shutdown waits for the running calls.
func ExampleConcurrencyLimiter_Shutdown() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
	defer stop()
	permit, _, err := calls.Acquire(context.Background(), "alice")
	if err != nil {
		panic(err)
	}
	time.AfterFunc(20*time.Millisecond, permit.Release)
	err = calls.Shutdown(context.Background())
	fmt.Println(calls.Running("alice"), err)
	// Output: 0 <nil>
}

// The error of Shutdown has the number of permits of calls that still run.
func ExampleConcurrencyLimiter_Shutdown_deadline() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
	defer stop()
	permit, _, err := calls.Acquire(context.Background(), "alice")
	if err != nil {
		panic(err)
	}
	defer permit.Release()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(calls.Shutdown(ctx))
	// Output: hybrid: Shutdown ended with 1 permits of calls that still run: context deadline exceeded
}
