package local_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

func ExampleNew() {
	ctx := context.Background()
	limiter, err := local.New(hybridlimit.TokenBucket(1, time.Minute, 2), local.Config{Name: "login"})
	if err != nil {
		panic(err)
	}
	defer func() { _ = limiter.Close() }()

	for range 3 {
		res, err := limiter.Allow(ctx, "alice")
		if err != nil {
			panic(err) // a bad key or a closed limiter; a denial is no error
		}
		if res.Allowed {
			fmt.Println("come in,", res.Remaining, "left")
		} else {
			fmt.Println("come back in", res.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// come in, 1 left
	// come in, 0 left
	// come back in 1m0s
}

func ExampleNew_invalid() {
	_, err := local.New(hybridlimit.PerMinute(10), local.Config{MaxKeys: -1, IdleAfter: time.Second})
	fmt.Println(err)
	// Output: local: Config.MaxKeys (-1) must not be negative; Config.IdleAfter (1s) must be at least the limit's time to full (1m0s)
}

func ExampleLimiter_AllowN() {
	ctx := context.Background()
	limiter, err := local.New(hybridlimit.PerHour(100), local.Config{})
	if err != nil {
		panic(err)
	}
	for _, cost := range []int64{70, 70, 30, 101} {
		res, err := limiter.AllowN(ctx, "batch-job", cost)
		if err != nil {
			panic(err)
		}
		fmt.Println(cost, res.Allowed, res.Remaining, res.RetryAfter == hybridlimit.Never)
	}
	// Output:
	// 70 true 30 false
	// 70 false 30 false
	// 30 true 0 false
	// 101 false 0 true
}

func ExampleLimiter_Peek() {
	ctx := context.Background()
	limiter, err := local.New(hybridlimit.PerHour(3), local.Config{})
	if err != nil {
		panic(err)
	}
	for range 2 {
		res, err := limiter.Peek(ctx, "alice")
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Allowed, res.Remaining)
	}
	// Output:
	// true 3
	// true 3
}

func ExampleLimiter_Reset() {
	ctx := context.Background()
	limiter, err := local.New(hybridlimit.PerHour(3), local.Config{})
	if err != nil {
		panic(err)
	}
	if _, err := limiter.AllowN(ctx, "alice", 3); err != nil {
		panic(err)
	}
	if err := limiter.Reset(ctx, "alice"); err != nil {
		panic(err)
	}
	res, err := limiter.Allow(ctx, "alice")
	fmt.Println(res.Allowed, res.Remaining, err)
	// Output: true 2 <nil>
}

func ExampleLimiter_Evicted() {
	ctx := context.Background()
	limiter, err := local.New(hybridlimit.PerHour(3), local.Config{MaxKeys: 2})
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"alice", "bob", "carol"} {
		if _, err := limiter.Allow(ctx, key); err != nil {
			panic(err)
		}
	}
	fmt.Println(limiter.Len(), "keys held,", limiter.Evicted(), "forgotten before they were full again")
	// Output: 2 keys held, 1 forgotten before they were full again
}

func ExampleLimiter_AllowN_allOrNone() {
	ctx := context.Background()
	limiter := open(hybridlimit.SlidingLog(5, time.Hour), local.Config{})
	for _, cost := range []int64{3, 3, 2} {
		res := ok(limiter.AllowN(ctx, "alice", cost))
		fmt.Println(cost, res.Allowed, res.Granted, res.Remaining)
	}
	// Output:
	// 3 true 3 2
	// 3 false 0 2
	// 2 true 2 0
}

func ExampleLimiter_Peek_denied() {
	ctx := context.Background()
	limiter := open(hybridlimit.SlidingLog(1, time.Hour), local.Config{})
	ok(limiter.Allow(ctx, "alice"))
	res := ok(limiter.Peek(ctx, "alice"))
	fmt.Println(res.Allowed, "for", res.RetryAfter.Round(time.Hour))
	// Output: false for 1h0m0s
}

func ExampleLimiter_Reset_others() {
	ctx := context.Background()
	limiter := open(hybridlimit.SlidingLog(1, time.Hour), local.Config{})
	ok(limiter.Allow(ctx, "alice"))
	ok(limiter.Allow(ctx, "bob"))
	if err := limiter.Reset(ctx, "alice"); err != nil {
		panic(err)
	}
	fmt.Println(ok(limiter.Peek(ctx, "alice")).Allowed, ok(limiter.Peek(ctx, "bob")).Allowed)
	// Output: true false
}

// A customer buys a larger plan. Without Invalidate, the limiter would ask LimitFor within LimitRefresh, a minute.
func ExampleLimiter_Invalidate() {
	plan := hybridlimit.PerHour(5) // in practice a table, with a lock
	limiter, err := local.New(hybridlimit.PerHour(1), local.Config{
		LimitFor: func(string) hybridlimit.Limit { return plan },
	})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	res, err := limiter.AllowN(context.Background(), "acme", 3)
	fmt.Println(res.Remaining, "of", res.Limit, err)

	plan = hybridlimit.PerHour(500)
	if err := limiter.Invalidate("acme"); err != nil {
		fmt.Println(err)
	}
	res, err = limiter.AllowN(context.Background(), "acme", 1) // used units stay used
	fmt.Println(res.Remaining, "of", res.Limit, err)
	// Output:
	// 2 of 5 <nil>
	// 1 of 500 <nil>
}

func ExampleConfig_limitFor() {
	ctx := context.Background()
	free, paid := hybridlimit.PerHour(10), hybridlimit.PerHour(1000)
	limiter := open(free, local.Config{LimitFor: func(key string) hybridlimit.Limit {
		if key == "alice" {
			return paid
		}
		return free
	}})
	for _, key := range []string{"alice", "bob"} {
		fmt.Println(key, ok(limiter.Allow(ctx, key)).Limit)
	}
	// Output:
	// alice 1000
	// bob 10
}

// The customer group is part of the key, so that the key alone decides the limit.
func ExampleConfig_limitFor_plans() {
	ctx := context.Background()
	plans := map[string]hybridlimit.Limit{
		"free":   hybridlimit.PerHour(2),
		"pro":    hybridlimit.PerHour(100),
		"staff":  hybridlimit.Unlimited(),
		"banned": hybridlimit.Blocked(),
	}
	limiter := open(plans["free"], local.Config{LimitFor: func(key string) hybridlimit.Limit {
		plan, _, _ := strings.Cut(key, "/")
		if limit, ok := plans[plan]; ok {
			return limit
		}
		return plans["free"]
	}})
	for _, key := range []string{"free/alice", "pro/bob", "old/carol", "staff/dave", "banned/eve"} {
		res := ok(limiter.AllowN(ctx, key, 3))
		fmt.Println(key, res.Allowed, res.Source)
	}
	// Output:
	// free/alice false static
	// pro/bob true local
	// old/carol false static
	// staff/dave true static
	// banned/eve false static
}
