package hybridlimit_test

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// A user may make 100 calls a minute, and one of them at a time.
func ExampleAcquirer() {
	ctx := context.Background()
	rate, err := local.New(hybridlimit.PerMinute(100), local.Config{Name: "rate"})
	if err != nil {
		panic(err)
	}
	var atOnce hybridlimit.Acquirer
	if atOnce, err = local.NewConcurrency(hybridlimit.Concurrent(1), local.ConcurrencyConfig{Name: "at-once"}); err != nil {
		panic(err)
	}
	call := func() hybridlimit.Permit {
		asks := []hybridlimit.Ask{{Limiter: atOnce, Key: "ann", N: 1}, {Limiter: rate, Key: "ann", N: 1}}
		res, err := hybridlimit.AllowAll(ctx, asks...)
		fmt.Println(res.Allowed, res.Policy, err)
		return asks[0].Permit
	}
	permit := call()
	call() // the denial takes nothing from the rate
	permit.Release()
	call().Release()
	res, err := rate.Peek(ctx, "ann")
	fmt.Println(res.Remaining, err)
	// Output:
	// true at-once <nil>
	// false at-once <nil>
	// true at-once <nil>
	// 98 <nil>
}
