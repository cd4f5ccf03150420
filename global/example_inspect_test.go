package global_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
)

// Inspect explains the decision on a key in one sentence.
func ExampleLimiter_Inspect() {
	limiter, stop := start(hybridlimit.PerHour(5), global.Config{Name: "upload"})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.AllowN(ctx, "alice", 3); err != nil {
		panic(err)
	}
	k, err := limiter.Inspect(ctx, "alice")
	fmt.Println(k, err)
	// Output: allowed because the bucket has 2 of 5 units left <nil>
}

// KeyState also has the figures.
func ExampleLimiter_Inspect_figures() {
	limiter, stop := start(hybridlimit.PerHour(5), global.Config{Name: "upload"})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.Charge(ctx, "alice", 7); err != nil {
		panic(err)
	}
	k, err := limiter.Inspect(ctx, "alice")
	fmt.Println(k.Left, k.Debt, k.Debited, k.RetryAfter.Round(time.Minute), err)
	// Output: 0 2 7 36m0s <nil>
}
