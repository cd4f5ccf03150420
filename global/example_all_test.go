package global_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
)

// hybridlimit.AllowAll calls AllowJoint of the first limiter.
func ExampleLimiter_AllowJoint() {
	rdb, stop := standIn()
	defer stop()
	perUser := startOn(rdb, hybridlimit.PerHour(2), global.Config{Name: "user", Tags: 1})
	defer perUser.Close()
	all := startOn(rdb, hybridlimit.PerHour(100), global.Config{Name: "all", Tags: 1})
	defer all.Close()

	for range 3 {
		res, err := hybridlimit.AllowAll(context.Background(),
			hybridlimit.Ask{Limiter: perUser, Key: "alice", N: 1},
			hybridlimit.Ask{Limiter: all, Key: "*", N: 1})
		fmt.Println(res.Allowed, res.Policy, res.Remaining, err)
	}
	left, err := all.Peek(context.Background(), "*")
	fmt.Println(left.Remaining, err) // the third call took nothing from this limit
	// Output:
	// true user 1 <nil>
	// true user 0 <nil>
	// false user 0 <nil>
	// 98 <nil>
}

// On a cluster, the limits of one tenant share a slot. Each call is then one message,
// which Redis decides as a whole.
func ExampleLimiter_AllowJoint_tenant() {
	rdb, stop := standIn()
	defer stop()
	tenantOf := func(key string) string { return key[:4] }
	requests := startOn(rdb, hybridlimit.PerMinute(10), global.Config{Name: "requests", TagBy: tenantOf})
	defer requests.Close()
	tokens := startOn(rdb, hybridlimit.PerHour(1000), global.Config{Name: "tokens", TagBy: tenantOf})
	defer tokens.Close()

	for _, cost := range []int64{600, 600, 300} {
		res, err := hybridlimit.AllowAll(context.Background(),
			hybridlimit.Ask{Limiter: requests, Key: "acme/alice", N: 1},
			hybridlimit.Ask{Limiter: tokens, Key: "acme", N: cost})
		if err != nil {
			panic(err)
		}
		if res.Allowed {
			fmt.Println(cost, "tokens; fewest left:", res.Remaining, res.Policy)
		} else {
			fmt.Println(cost, "tokens denied by", res.Policy, "for", res.RetryAfter)
		}
	}
	// Output:
	// 600 tokens; fewest left: 9 requests
	// 600 tokens denied by tokens for 12m0s
	// 300 tokens; fewest left: 8 requests
}

func ExampleLimiter_History() {
	limiter, stop := start(hybridlimit.SlidingLog(3, time.Hour), global.Config{Name: "login"})
	defer stop()

	for _, id := range []string{"req-1", "req-2"} {
		ctx, err := hybridlimit.WithRequestID(context.Background(), id)
		if err != nil {
			panic(err)
		}
		if _, err := limiter.Allow(ctx, "alice"); err != nil {
			panic(err)
		}
	}
	log, err := limiter.History(context.Background(), "alice")
	for _, a := range log {
		fmt.Println(a.At.UTC().Format("15:04:05.000000"), a.Units, a.RequestID)
	}
	fmt.Println(err)
	// Output:
	// 02:13:20.000000 1 req-1
	// 02:13:20.000001 1 req-2
	// <nil>
}

// The history shows the admissions that use up a limit. A denied call is not in it.
func ExampleLimiter_History_audit() {
	limiter, stop := start(hybridlimit.SlidingLog(3, time.Hour), global.Config{Name: "payouts"})
	defer stop()

	for i, units := range []int64{2, 2, 1} {
		ctx, err := hybridlimit.WithRequestID(context.Background(), fmt.Sprint("payout-", i))
		if err != nil {
			panic(err)
		}
		if _, err := limiter.AllowN(ctx, "acme", units); err != nil {
			panic(err)
		}
	}
	log, err := limiter.History(context.Background(), "acme")
	if err != nil {
		panic(err)
	}
	var used int64
	for _, a := range log {
		used += a.Units
		fmt.Println(a.RequestID, a.Units)
	}
	fmt.Println("used", used)
	// Output:
	// payout-0 2
	// payout-2 1
	// used 3
}
