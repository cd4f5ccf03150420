package local_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// NGINX's rate=10r/s with burst=20 delay=8: nine calls are served at once, twelve at
// ten a second, and the rest are denied. docs/limits.md shows the lines in the loop.
func ExampleLimiter_Allow_headStart() {
	limit, err := hybridlimit.ParseLimit("10/s burst 21 leaky queue")
	if err != nil {
		panic(err)
	}
	limiter, err := local.New(limit, local.Config{})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	var atOnce, denied int
	for range 30 {
		res, err := limiter.Allow(context.Background(), "alice")
		if err != nil {
			panic(err)
		}
		// limit is 10/s burst 21 leaky queue; 8 calls are not delayed.
		const headStart = 8
		each := limit.Period / time.Duration(limit.Rate)
		wait := max(0, res.Delay-headStart*each)
		switch {
		case !res.Allowed:
			denied++
		case wait == 0:
			atOnce++
		}
	}
	fmt.Println(atOnce, "at once,", 30-atOnce-denied, "later,", denied, "denied")
	// Output: 9 at once, 12 later, 9 denied
}
