package local_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// inFlight makes a limiter of n calls in flight.
func inFlight(n int64, cfg local.ConcurrencyConfig) *local.ConcurrencyLimiter {
	l, err := local.NewConcurrency(hybridlimit.Concurrent(n), cfg)
	if err != nil {
		panic(err)
	}
	return l
}

// Two exports of a customer may run at once.
func ExampleConcurrencyLimiter_Acquire() {
	l, ctx := inFlight(2, local.ConcurrencyConfig{}), context.Background()
	defer l.Close()
	export := func(then func()) {
		permit, res, err := l.Acquire(ctx, "customer-7")
		if err != nil || !res.Allowed {
			fmt.Println("denied,", res.Remaining, "of", res.Limit, "free")
			return
		}
		defer permit.Release() // also after a panic
		fmt.Println("runs,", res.Remaining, "of", res.Limit, "free")
		then()
	}
	export(func() { export(func() { export(func() {}) }) })
	fmt.Println(l.Running("customer-7"), "running")
	// Output:
	// runs, 1 of 2 free
	// runs, 0 of 2 free
	// denied, 0 of 2 free
	// 0 running
}

// A call waits until another one ends.
func ExampleConcurrencyLimiter_Acquire_wait() {
	l, ctx := inFlight(1, local.ConcurrencyConfig{MaxWait: time.Minute}), context.Background()
	defer l.Close()
	first, _, _ := l.Acquire(ctx, "printer")
	go func() {
		fmt.Println("the first call ends")
		first.Release()
	}()
	second, res, err := l.Acquire(ctx, "printer")
	fmt.Println(res.Allowed, err)
	second.Release()
	// Output:
	// the first call ends
	// true <nil>
}

// A large job counts as several calls.
func ExampleConcurrencyLimiter_AcquireN() {
	l, ctx := inFlight(10, local.ConcurrencyConfig{}), context.Background()
	defer l.Close()
	large, res, _ := l.AcquireN(ctx, "workers", 8)
	fmt.Println(res.Allowed, res.Remaining)
	_, res, _ = l.AcquireN(ctx, "workers", 3)
	fmt.Println(res.Allowed, res.Remaining)
	large.Release()
	large.Release() // has no effect
	fmt.Println(l.Running("workers"))
	// Output:
	// true 2
	// false 2
	// 0
}

// A job above the limit can never run.
func ExampleConcurrencyLimiter_AcquireN_never() {
	l := inFlight(10, local.ConcurrencyConfig{MaxWait: time.Hour})
	defer l.Close()
	_, res, err := l.AcquireN(context.Background(), "workers", 11) // does not wait
	fmt.Println(res.Allowed, res.RetryAfter == hybridlimit.Never, err)
	// Output: false true <nil>
}

func ExampleConcurrencyLimiter_Peek() {
	l, ctx := inFlight(3, local.ConcurrencyConfig{}), context.Background()
	defer l.Close()
	permit, _, _ := l.AcquireN(ctx, "k", 2)
	defer permit.Release()
	res, err := l.Peek(ctx, "k")
	fmt.Println(res.Allowed, res.Remaining, err)
	// Output: true 1 <nil>
}

// Shows the least busy of some servers.
func ExampleConcurrencyLimiter_Peek_choose() {
	l, ctx := inFlight(5, local.ConcurrencyConfig{}), context.Background()
	defer l.Close()
	busy, _, _ := l.AcquireN(ctx, "server-1", 3)
	defer busy.Release()
	best, most := "", int64(-1)
	for _, server := range []string{"server-1", "server-2"} {
		if res, err := l.Peek(ctx, server); err == nil && res.Remaining > most {
			best, most = server, res.Remaining
		}
	}
	fmt.Println(best, most)
	// Output: server-2 5
}

// Fewer permits end no running call.
func ExampleConcurrencyLimiter_SetLimit() {
	l, ctx := inFlight(2, local.ConcurrencyConfig{}), context.Background()
	defer l.Close()
	one, _, _ := l.Acquire(ctx, "k")
	two, _, _ := l.Acquire(ctx, "k")
	fmt.Println(l.SetLimit(hybridlimit.Concurrent(1)), l.Running("k"))
	one.Release()
	_, res, _ := l.Acquire(ctx, "k")
	fmt.Println(res.Allowed)
	two.Release()
	_, res, _ = l.Acquire(ctx, "k")
	fmt.Println(res.Allowed)
	// Output:
	// <nil> 2
	// false
	// true
}

// More permits serve the calls that wait.
func ExampleConcurrencyLimiter_SetLimit_more() {
	l, ctx := inFlight(1, local.ConcurrencyConfig{MaxWait: time.Minute}), context.Background()
	defer l.Close()
	held, _, _ := l.Acquire(ctx, "k")
	defer held.Release()
	go func() { _ = l.SetLimit(hybridlimit.Concurrent(2)) }()
	permit, res, err := l.Acquire(ctx, "k")
	fmt.Println(res.Allowed, res.Limit, err)
	permit.Release()
	// Output: true 2 <nil>
}

// Running calls are a fact: Reset does not end them.
func ExampleConcurrencyLimiter_Reset() {
	l, ctx := inFlight(1, local.ConcurrencyConfig{}), context.Background()
	defer l.Close()
	permit, _, _ := l.Acquire(ctx, "k")
	fmt.Println(l.Reset(ctx, "k"), l.Running("k"))
	permit.Release()
	fmt.Println(l.Running("k"))
	// Output:
	// <nil> 1
	// 0
}

// Reset checks its key, as that of a rate limiter does.
func ExampleConcurrencyLimiter_Reset_key() {
	l := inFlight(1, local.ConcurrencyConfig{})
	defer l.Close()
	fmt.Println(l.Reset(context.Background(), ""))
	// Output: local: hybridlimit: key is empty
}
