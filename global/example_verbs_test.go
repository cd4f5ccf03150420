package global_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
)

// start returns a limiter with a Redis inside this program.
func start(limit hybridlimit.Limit, cfg global.Config) (l *global.Limiter, stop func()) {
	rdb, stopRedis := standIn()
	l = startOn(rdb, limit, cfg)
	return l, func() {
		_ = l.Close()
		stopRedis()
	}
}

// startOn returns a limiter with the time-out of an example, which prints the same on a busy
// machine.
func startOn(rdb redis.UniversalClient, limit hybridlimit.Limit, cfg global.Config) *global.Limiter {
	cfg.Timeout = 10 * time.Second
	l, err := global.New(rdb, limit, cfg)
	if err != nil {
		panic(err)
	}
	return l
}

func ExampleLimiter_AllowAtMost() {
	limiter, stop := start(hybridlimit.PerHour(10), global.Config{Name: "mail"})
	defer stop()

	for range 2 {
		res, err := limiter.AllowAtMost(context.Background(), "alice", 8)
		fmt.Println(res.Allowed, res.Granted, err)
	}
	// Output:
	// true 8 <nil>
	// true 2 <nil>
}

// A worker sends the part of a queue that the limit admits. RetryAfter is the time until
// the next part can be sent.
func ExampleLimiter_AllowAtMost_queue() {
	limiter, stop := start(hybridlimit.TokenBucket(1, time.Minute, 3), global.Config{Name: "webhooks"})
	defer stop()

	queue := []string{"a", "b", "c", "d", "e"}
	for len(queue) > 0 {
		res, err := limiter.AllowAtMost(context.Background(), "tenant-7", int64(len(queue)))
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			fmt.Println(len(queue), "left for", res.RetryAfter, "later")
			return
		}
		fmt.Println("send", strings.Join(queue[:res.Granted], " "))
		queue = queue[res.Granted:]
	}
	// Output:
	// send a b c
	// 2 left for 1m0s later
}

func ExampleLimiter_AllowLimit() {
	limiter, stop := start(hybridlimit.PerHour(1), global.Config{Name: "api"})
	defer stop()

	for range 3 {
		res, err := limiter.AllowLimit(context.Background(), "alice", 1, hybridlimit.PerHour(2))
		fmt.Println(res.Allowed, res.Limit, err)
	}
	// Output:
	// true 2 <nil>
	// true 2 <nil>
	// false 2 <nil>
}

// The customer's plan comes from the caller's token. A better plan does not refill the key.
func ExampleLimiter_AllowLimit_token() {
	limiter, stop := start(hybridlimit.PerHour(1), global.Config{Name: "api"})
	defer stop()

	type token struct {
		subject string
		perHour int64
	}
	for _, t := range []token{{"alice", 5}, {"alice", 5}, {"bob", 100}, {"alice", 100}} {
		res, err := limiter.AllowLimit(context.Background(), t.subject, 4, hybridlimit.PerHour(t.perHour))
		if err != nil {
			panic(err)
		}
		fmt.Println(t.subject, res.Allowed, res.Remaining, "of", res.Limit, "retry in", res.RetryAfter)
	}
	// Output:
	// alice true 1 of 5 retry in 0s
	// alice false 1 of 5 retry in 36m0s
	// bob true 96 of 100 retry in 0s
	// alice false 1 of 100 retry in 1m48s
}

func ExampleLimiter_Peek() {
	limiter, stop := start(hybridlimit.PerHour(3), global.Config{Name: "api"})
	defer stop()

	for range 2 {
		res, err := limiter.Peek(context.Background(), "alice")
		fmt.Println(res.Allowed, res.Remaining, err)
	}
	// Output:
	// true 3 <nil>
	// true 3 <nil>
}

// A page shows the units left of a quota. Peek takes none of them.
func ExampleLimiter_Peek_quota() {
	limiter, stop := start(hybridlimit.TokenBucket(100, 100*time.Hour, 100), global.Config{Name: "export"})
	defer stop()

	if _, err := limiter.AllowN(context.Background(), "alice", 30); err != nil {
		panic(err)
	}
	for _, user := range []string{"alice", "bob"} {
		res, err := limiter.Peek(context.Background(), user)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %d of %d left, all of them in %v\n", user, res.Remaining, res.Limit, res.ResetAfter)
	}
	// Output:
	// alice: 70 of 100 left, all of them in 30h0m0s
	// bob: 100 of 100 left, all of them in 0s
}

func ExampleLimiter_Charge() {
	limiter, stop := start(hybridlimit.PerHour(10), global.Config{Name: "api"})
	defer stop()
	ctx := context.Background()

	res, err := limiter.Charge(ctx, "alice", 12) // two units of debt
	fmt.Println(res.Granted, res.Remaining, err)
	res, err = limiter.Allow(ctx, "alice")
	fmt.Println(res.Allowed, res.RetryAfter, err)
	// Output:
	// 12 0 <nil>
	// false 18m0s <nil>
}

// A request to a language model is admitted for the predicted number of tokens. After
// the request, Charge takes the rest of the actual number.
func ExampleLimiter_Charge_tokens() {
	limiter, stop := start(hybridlimit.PerHour(1000), global.Config{Name: "tokens"})
	defer stop()
	ctx := context.Background()

	for _, request := range []struct{ predicted, used int64 }{{300, 450}, {400, 700}, {50, 50}} {
		res, err := limiter.AllowN(ctx, "alice", request.predicted)
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			fmt.Println("denied for", res.RetryAfter)
			continue
		}
		if more := request.used - request.predicted; more > 0 {
			if res, err = limiter.Charge(ctx, "alice", more); err != nil {
				panic(err)
			}
		}
		fmt.Println("used", request.used, "left", res.Remaining)
	}
	// Output:
	// used 450 left 550
	// used 700 left 0
	// denied for 12m0s
}

func ExampleLimiter_SetLimit() {
	limiter, stop := start(hybridlimit.PerHour(10), global.Config{Name: "api"})
	defer stop()

	fmt.Println(limiter.SetLimit(hybridlimit.PerHour(20)))
	res, err := limiter.Allow(context.Background(), "alice")
	fmt.Println(res.Remaining, res.Limit, err)
	// Output:
	// <nil>
	// 19 20 <nil>
}

// The limit changes while the program runs. Used units stay used.
func ExampleLimiter_SetLimit_reload() {
	limiter, stop := start(hybridlimit.PerHour(10), global.Config{Name: "api"})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.AllowN(ctx, "alice", 8); err != nil {
		panic(err)
	}
	for _, perHour := range []int64{20, 1, 0} { // from a configuration file
		if err := limiter.SetLimit(hybridlimit.PerHour(perHour)); err != nil {
			fmt.Println(err)
		}
		res, err := limiter.Peek(ctx, "alice")
		fmt.Println(res.Remaining, "of", res.Limit, err)
	}
	// Output:
	// 2 of 20 <nil>
	// 1 of 1 <nil>
	// hybridlimit: Limit.Rate (0) must be at least 1
	// 1 of 1 <nil>
}

func ExampleConfig_limitFor() {
	limiter, stop := start(hybridlimit.PerHour(5), global.Config{
		Name: "api",
		LimitFor: func(key string) hybridlimit.Limit {
			if key == "vip" {
				return hybridlimit.PerHour(50)
			}
			return hybridlimit.PerHour(5)
		},
	})
	defer stop()

	for _, key := range []string{"alice", "vip"} {
		res, err := limiter.Allow(context.Background(), key)
		fmt.Println(key, res.Limit, err)
	}
	// Output:
	// alice 5 <nil>
	// vip 50 <nil>
}

// The plan is part of the key, so that the key alone decides the limit.
func ExampleConfig_limitFor_plans() {
	plans := map[string]hybridlimit.Limit{
		"free": hybridlimit.PerHour(2),
		"pro":  hybridlimit.PerHour(100),
	}
	limiter, stop := start(plans["free"], global.Config{
		Name: "api",
		LimitFor: func(key string) hybridlimit.Limit {
			plan, _, _ := strings.Cut(key, "/")
			if limit, ok := plans[plan]; ok {
				return limit
			}
			return plans["free"]
		},
	})
	defer stop()

	for _, key := range []string{"free/alice", "pro/bob", "old/carol"} {
		res, err := limiter.AllowN(context.Background(), key, 3)
		fmt.Println(key, res.Allowed, "of", res.Limit, err)
	}
	// Output:
	// free/alice false of 2 <nil>
	// pro/bob true of 100 <nil>
	// old/carol false of 2 <nil>
}
