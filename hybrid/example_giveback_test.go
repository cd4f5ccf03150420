package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Examples of units taken for later (Reserve, Wait) and of units given back
// (Cancel, Refund, Reset).

func ExampleLimiter_Reserve() {
	limiter, stop := start(hybridlimit.TokenBucket(1, time.Hour, 2), hybrid.Config{Name: "mail", Mode: hybrid.ModeStrict})
	defer stop()

	for range 4 {
		r, err := limiter.Reserve(context.Background(), "alice", 1)
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Allowed, "in", r.Delay.Round(time.Hour))
	}
	// Output:
	// true in 0s
	// true in 0s
	// true in 1h0m0s
	// true in 2h0m0s
}

// The caller reserves units before it knows whether it needs them. Cancel gives
// them back.
func ExampleLimiter_Reserve_cancel() {
	limiter, stop := start(hybridlimit.PerHour(5), hybrid.Config{Name: "upload"})
	defer stop()
	ctx := context.Background()

	r, err := limiter.Reserve(ctx, "alice", 4)
	if err != nil {
		panic(err)
	}
	cached := true // as it turns out
	if cached {
		if err := r.Cancel(ctx); err != nil {
			panic(err)
		}
	}
	res, err := limiter.AllowN(ctx, "alice", 5)
	fmt.Println(r.Remaining, "left, and after Cancel there were all 5:", res.Allowed, err)
	// Output: 1 left, and after Cancel there were all 5: true <nil>
}

// Wait is for background work: it returns when the units may be used.
func ExampleLimiter_Wait() {
	limiter, stop := start(hybridlimit.TokenBucket(100, time.Second, 2), hybrid.Config{Name: "crawler"})
	defer stop()

	for _, page := range []string{"/", "/about", "/prices", "/jobs"} {
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

// If the units are not available before the deadline, Wait fails at once and
// takes nothing.
func ExampleLimiter_Wait_deadline() {
	limiter, stop := start(hybridlimit.TokenBucket(1, time.Hour, 2), hybrid.Config{Name: "report"})
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
	limiter, stop := start(hybridlimit.PerHour(10), hybrid.Config{Name: "api", Mode: hybrid.ModeExact})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.AllowN(ctx, "alice", 6); err != nil {
		panic(err)
	}
	res, err := limiter.Refund(ctx, "alice", 4) // the actual cost was 2
	fmt.Println(res.Remaining, err)
	// Output: 8 <nil>
}

// Only failed attempts count against a login: the unit of a successful attempt
// is given back. ModeExact asks Redis for each call. At a few units an hour
// Redis decides anyway, so this costs nothing extra.
func ExampleLimiter_Refund_login() {
	limiter, stop := start(hybridlimit.PerHour(3), hybrid.Config{Name: "login", Mode: hybrid.ModeExact})
	defer stop()
	ctx := context.Background()

	for _, password := range []string{"guess", "secret", "secret", "guess", "guess", "secret"} {
		res, err := limiter.Allow(ctx, "alice")
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			fmt.Println("locked for", res.RetryAfter.Round(time.Minute))
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
	limiter, stop := start(hybridlimit.PerHour(3), hybrid.Config{Name: "login"})
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

// Reset unlocks one account, and leaves the others as they are.
func ExampleLimiter_Reset_others() {
	limiter, stop := start(hybridlimit.PerHour(3), hybrid.Config{Name: "login"})
	defer stop()
	ctx := context.Background()

	for _, user := range []string{"alice", "bob"} {
		if _, err := limiter.AllowN(ctx, user, 3); err != nil {
			panic(err)
		}
	}
	if err := limiter.Reset(ctx, "alice"); err != nil {
		panic(err)
	}
	for _, user := range []string{"alice", "bob"} {
		res, err := limiter.Allow(ctx, user)
		fmt.Println(user, res.Allowed, err)
	}
	// Output:
	// alice true <nil>
	// bob false <nil>
}
