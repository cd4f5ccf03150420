package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Examples of limits on calls in flight: Hub.Concurrency, Acquire and its relatives.

// exampleCalls returns a limiter of calls in flight.
func exampleCalls(limit hybridlimit.Limit, cfg hybrid.ConcurrencyConfig) (calls *hybrid.ConcurrencyLimiter, stop func()) {
	hub, stop := newExampleHub()
	cfg.Name = "reports"
	calls, err := hub.Concurrency(limit, cfg)
	if err != nil {
		panic(err)
	}
	return calls, stop
}

// A rate and calls in flight are limited by one hub.
func ExampleHub_Concurrency() {
	hub, stop := newExampleHub()
	defer stop()
	rate, err := hub.Limiter(hybridlimit.PerSecond(100), hybrid.Config{Name: "requests", MaxWait: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	calls, err := hub.Concurrency(hybridlimit.Concurrent(20), hybrid.ConcurrencyConfig{Name: "running"})
	if err != nil {
		panic(err)
	}
	asks := []hybridlimit.Ask{{Limiter: rate, Key: "alice", N: 1}, {Limiter: calls, Key: "alice", N: 1}}
	res, err := hybridlimit.AllowAll(context.Background(), asks...)
	fmt.Println(res.Allowed, err)
	asks[1].Permit.Release() // when the call ends
	// Output: true <nil>
}

// A rate is not a limit of calls in flight.
func ExampleHub_Concurrency_rate() {
	hub, stop := newExampleHub()
	defer stop()
	_, err := hub.Concurrency(hybridlimit.PerSecond(100), hybrid.ConcurrencyConfig{Name: "running"})
	fmt.Println(errors.Is(err, hybridlimit.ErrUnsupported))
	// Output: true
}

func ExampleConcurrencyLimiter_Acquire() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(2), hybrid.ConcurrencyConfig{})
	defer stop()
	work := func() {
		permit, res, err := calls.Acquire(context.Background(), "alice")
		if err != nil || !res.Allowed {
			fmt.Println("too many calls", err)
			return
		}
		defer permit.Release() // also after a panic
		fmt.Println("works beside", calls.Running("alice")-1)
	}
	work()
	work()
	// Output:
	// works beside 0
	// works beside 0
}

// With MaxWait, a call waits for the end of another one.
func ExampleConcurrencyLimiter_Acquire_wait() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(1), hybrid.ConcurrencyConfig{MaxWait: time.Minute})
	defer stop()
	first, _, err := calls.Acquire(context.Background(), "alice")
	if err != nil {
		panic(err)
	}
	time.AfterFunc(10*time.Millisecond, first.Release)
	second, res, err := calls.Acquire(context.Background(), "alice")
	fmt.Println(res.Allowed, err)
	second.Release()
	// Output: true <nil>
}

// A large report counts as five calls.
func ExampleConcurrencyLimiter_AcquireN() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(8), hybrid.ConcurrencyConfig{})
	defer stop()
	permit, res, err := calls.AcquireN(context.Background(), "alice", 5)
	fmt.Println(res.Allowed, res.Granted, calls.Running("alice"), err)
	permit.Release() // all five
	fmt.Println(calls.Running("alice"))
	// Output:
	// true 5 5 <nil>
	// 0
}

// A call above the limit never gets its permits.
func ExampleConcurrencyLimiter_AcquireN_aboveTheLimit() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(8), hybrid.ConcurrencyConfig{MaxWait: time.Minute})
	defer stop()
	_, res, err := calls.AcquireN(context.Background(), "alice", 9)
	fmt.Println(res.Allowed, res.RetryAfter == hybridlimit.Never, err)
	// Output: false true <nil>
}

func ExampleConcurrencyLimiter_Peek() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{})
	defer stop()
	res, err := calls.Peek(context.Background(), "alice")
	fmt.Println(res.Allowed, res.Limit, err)
	// Output: true 3 <nil>
}

// A key whose limit is Blocked admits no call.
func ExampleConcurrencyLimiter_Peek_blocked() {
	calls, stop := exampleCalls(hybridlimit.Blocked(), hybrid.ConcurrencyConfig{})
	defer stop()
	res, err := calls.Peek(context.Background(), "alice")
	fmt.Println(res.Allowed, res.RetryAfter == hybridlimit.Never, err)
	// Output: false true <nil>
}

// Inspect has the reason of a decision, for people on call.
func ExampleConcurrencyLimiter_Inspect() {
	calls, stop := exampleCalls(hybridlimit.Unlimited(), hybrid.ConcurrencyConfig{})
	defer stop()
	i, err := calls.Inspect(context.Background(), "alice")
	_, because, _ := strings.Cut(i.Sentence, "because ")
	fmt.Println(i.Outcome, "because", because, err)
	// Output: allow because the limit is unlimited <nil>
}

// The numbers of an Inspection are for programs.
func ExampleConcurrencyLimiter_Inspect_numbers() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{})
	defer stop()
	permit, _, err := calls.Acquire(context.Background(), "alice")
	if err != nil {
		panic(err)
	}
	defer permit.Release()
	i, err := calls.Inspect(context.Background(), "alice")
	fmt.Println(i.Limit, i.Running, i.Waiting, err)
	// Output: 3 concurrent 1 0 <nil>
}

// Reset is for a key whose permits in Redis are wrong. Running calls keep theirs.
func ExampleConcurrencyLimiter_Reset() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{})
	defer stop()
	permit, _, err := calls.Acquire(context.Background(), "alice")
	if err != nil {
		panic(err)
	}
	fmt.Println(calls.Reset(context.Background(), "alice"), calls.Running("alice"))
	permit.Release()
	// Output: <nil> 1
}

// Without Redis, Reset fails at the end of ctx, or after HubConfig.SyncTimeout.
func ExampleConcurrencyLimiter_Reset_closed() {
	calls, stop := exampleCalls(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{})
	stop()
	fmt.Println(calls.Reset(context.Background(), "alice"))
	// Output: hybridlimit: limiter is closed
}
