package hybrid_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Inspect tells why a user is denied.
func ExampleLimiter_Inspect() {
	limiter, stop := start(hybridlimit.PerHour(5), hybrid.Config{Name: "login"})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.AllowN(ctx, "alice", 5); err != nil {
		panic(err)
	}
	why, err := limiter.Inspect(ctx, "alice")
	if err != nil {
		panic(err)
	}
	_, reason, _ := strings.Cut(why.Sentence, "because") // the text before it has the end of the denial
	said, _, _ := strings.Cut(reason, " ago")
	fmt.Println(why.Outcome, "because"+strings.TrimRight(said, "0123456789. ms"))
	// Output: deny because Redis said the bucket is empty
}

// An Inspection also has the figures behind the sentence, for example for a
// status page.
func ExampleLimiter_Inspect_figures() {
	limiter, stop := start(hybridlimit.PerHour(5), hybrid.Config{Name: "login", Mode: hybrid.ModeExact})
	defer stop()

	why, err := limiter.Inspect(context.Background(), "alice")
	if err != nil {
		panic(err)
	}
	fmt.Println(why.Outcome, why.Limit, why.Mode, why.Breaker, why.Owed)
	// Output: ask 5 per 1h0m0s, burst 5 (token bucket) exact closed 0
}

// InspectRedis adds the state that Redis has now.
func ExampleLimiter_InspectRedis() {
	limiter, stop := start(hybridlimit.PerHour(5), hybrid.Config{Name: "login"})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.AllowN(ctx, "alice", 2); err != nil {
		panic(err)
	}
	why, err := limiter.InspectRedis(ctx, "alice")
	if err != nil {
		panic(err)
	}
	fmt.Println(why.Redis)
	// Output: allowed because the bucket has 3 of 5 units left
}

// Redis keeps no state of an unused key.
func ExampleLimiter_InspectRedis_unused() {
	limiter, stop := start(hybridlimit.PerHour(5), hybrid.Config{Name: "login"})
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	why, err := limiter.InspectRedis(ctx, "nobody")
	if err != nil {
		panic(err)
	}
	fmt.Println(why.Redis.Found, why.Redis.Left, why.Redis)
	// Output: false 5 allowed because Redis has no bucket of the key: it was never used, or is full again
}
