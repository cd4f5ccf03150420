package global_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
)

// A reservation takes units that the bucket has not refilled yet. Delay is the time
// until they may be used.

func ExampleLimiter_Reserve() {
	limiter, stop := start(hybridlimit.TokenBucket(10, time.Second, 1), global.Config{Name: "mail"})
	defer stop()

	for range 3 {
		r, err := limiter.Reserve(context.Background(), "alice", 1)
		fmt.Println(r.Allowed, "in", r.Delay, err)
	}
	// Output:
	// true in 0s <nil>
	// true in 100ms <nil>
	// false in 0s <nil>
}

// Reserve units before it is known whether they are needed. Cancel gives them back.
func ExampleLimiter_Reserve_cancel() {
	limiter, stop := start(hybridlimit.PerHour(5), global.Config{Name: "upload"})
	defer stop()
	ctx := context.Background()

	r, err := limiter.Reserve(ctx, "alice", 4)
	if err != nil {
		panic(err)
	}
	cached := true // the work turned out to be unnecessary
	if cached {
		if err := r.Cancel(ctx); err != nil {
			panic(err)
		}
	}
	res, err := limiter.Peek(ctx, "alice")
	fmt.Println(r.Remaining, "left, and after Cancel", res.Remaining, err)
	// Output: 1 left, and after Cancel 5 <nil>
}

// Wait is for background work: it returns when the units may be used.
func ExampleLimiter_Wait() {
	limiter, stop := start(hybridlimit.TokenBucket(100, time.Second, 2), global.Config{Name: "crawler"})
	defer stop()

	for _, page := range []string{"/", "/about", "/prices", "/jobs"} { // the last two wait 10 ms each

		if _, err := limiter.Wait(context.Background(), "example.com", 1); err != nil {
			panic(err)
		}
		fmt.Println("GET", page)
	}
	// Output:
	// GET /
	// GET /about
	// GET /prices
	// GET /jobs
}

// A wait beyond the deadline fails at once, and so does a cost above the burst. Both
// take no units.
func ExampleLimiter_Wait_deadline() {
	limiter, stop := start(hybridlimit.TokenBucket(1, time.Hour, 2), global.Config{Name: "report"})
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	for _, n := range []int64{2, 1, 3} {
		_, err := limiter.Wait(ctx, "alice", n)
		fmt.Println(n, errors.Is(err, context.DeadlineExceeded), errors.Is(err, hybridlimit.ErrExceedsBurst), ctx.Err())
	}
	// Output:
	// 2 false false <nil>
	// 1 true false <nil>
	// 3 false true <nil>
}

func ExampleLimiter_Refund() {
	limiter, stop := start(hybridlimit.PerHour(10), global.Config{Name: "api"})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.AllowN(ctx, "alice", 6); err != nil {
		panic(err)
	}
	res, err := limiter.Refund(ctx, "alice", 4) // the call cost only 2
	fmt.Println(res.Remaining, err)
	// Output: 8 <nil>
}

// Only failed attempts count against a login. A successful attempt gets its unit back.
func ExampleLimiter_Refund_login() {
	limiter, stop := start(hybridlimit.PerHour(3), global.Config{Name: "login"})
	defer stop()
	ctx := context.Background()

	for _, password := range []string{"guess", "secret", "secret", "guess", "guess", "secret"} {
		res, err := limiter.Allow(ctx, "alice")
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			fmt.Println("locked for", res.RetryAfter)
			break
		}
		if password == "secret" {
			if res, err = limiter.Refund(ctx, "alice", 1); err != nil {
				panic(err)
			}
		}
		fmt.Println(password, res.Remaining)
	}
	// Output:
	// guess 2
	// secret 2
	// secret 2
	// guess 1
	// guess 0
	// locked for 20m0s
}

func ExampleLimiter_Reset() {
	limiter, stop := start(hybridlimit.PerHour(3), global.Config{Name: "login"})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.AllowN(ctx, "alice", 3); err != nil {
		panic(err)
	}
	fmt.Println(limiter.Reset(ctx, "alice"))
	res, err := limiter.Peek(ctx, "alice")
	fmt.Println(res.Remaining, err)
	// Output:
	// <nil>
	// 3 <nil>
}

// Support unlocks one account. Reset also ends its debt. Other keys keep their usage.
func ExampleLimiter_Reset_others() {
	limiter, stop := start(hybridlimit.PerHour(3), global.Config{Name: "login"})
	defer stop()
	ctx := context.Background()

	for _, user := range []string{"alice", "bob"} {
		if _, err := limiter.Charge(ctx, user, 5); err != nil { // in debt
			panic(err)
		}
	}
	if err := limiter.Reset(ctx, "alice"); err != nil {
		panic(err)
	}
	for _, user := range []string{"alice", "bob"} {
		res, err := limiter.Allow(ctx, user)
		fmt.Println(user, res.Allowed, res.RetryAfter, err)
	}
	// Output:
	// alice true 0s <nil>
	// bob false 1h0m0s <nil>
}
