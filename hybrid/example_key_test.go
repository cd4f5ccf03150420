package hybrid_test

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// A handle is for a key that is known beforehand, here the one key of a whole
// service.
func ExampleLimiter_Handle() {
	limiter, stop := start(hybridlimit.PerHour(3), hybrid.Config{Name: "reports"})
	defer stop()

	all := limiter.Handle("all")
	for range 4 {
		res, err := all.Allow(context.Background())
		fmt.Println(res.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// false <nil>
}

// A handle and its limiter share the key's units.
func ExampleHandle_AllowN() {
	limiter, stop := start(hybridlimit.PerHour(10), hybrid.Config{Name: "uploads"})
	defer stop()

	session := limiter.Handle("alice") // keep the handle as long as the connection
	a, _ := session.AllowN(context.Background(), 7)
	b, _ := limiter.AllowN(context.Background(), "alice", 7)
	fmt.Println(a.Allowed, b.Allowed)
	// Output: true false
}
