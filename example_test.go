package hybridlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/local"
)

func ExampleLimit() {
	fmt.Println(hybridlimit.PerSecond(100))
	fmt.Println(hybridlimit.TokenBucket(100, time.Second, 200))
	fmt.Println(hybridlimit.SlidingWindow(5, time.Minute))
	// Limits are comparable.
	fmt.Println(hybridlimit.PerMinute(5) == hybridlimit.TokenBucket(5, time.Minute, 0))
	// Output:
	// 100 per 1s, burst 100 (token bucket)
	// 100 per 1s, burst 200 (token bucket)
	// 5 per 1m0s (sliding window)
	// true
}

func ExampleAllowAll() {
	perUser, err := local.New(hybridlimit.PerHour(2), local.Config{Name: "user"})
	if err != nil {
		panic(err)
	}
	perAddr, err := local.New(hybridlimit.PerHour(100), local.Config{Name: "addr"})
	if err != nil {
		panic(err)
	}
	for range 3 {
		asks := []hybridlimit.Ask{{Limiter: perUser, Key: "alice", N: 1}, {Limiter: perAddr, Key: "192.0.2.1", N: 1}}
		res, err := hybridlimit.AllowAll(context.Background(), asks...)
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			fmt.Println("denied by", res.Policy)
			continue
		}
		fmt.Println(res.Remaining, "left by", res.Policy, "and", asks[1].Result.Remaining, "for the address")
	}
	// Output:
	// 1 left by user and 99 for the address
	// 0 left by user and 98 for the address
	// denied by user
}

func ExampleLimit_Validate() {
	err := hybridlimit.Limit{Rate: -1, Period: 1500}.Validate()
	fmt.Println(err)
	fmt.Println(errors.Is(err, hybridlimit.ErrInvalid))
	// Output:
	// hybridlimit: Limit.Rate (-1) must be at least 1; Limit.Period (1.5µs) must be a whole number of µs
	// true
}

func ExampleLimit_TimeToFull() {
	fmt.Println(hybridlimit.TokenBucket(10, time.Second, 25).TimeToFull())
	// Output: 2.5s
}

// A quota of 1000 units a day can be spent at once. After that, one unit comes
// back every 86.4 s.
func ExamplePerDay() {
	limit := hybridlimit.PerDay(1000)
	fmt.Println(limit)
	fmt.Println(limit.TimeToFull() / time.Duration(limit.BurstSize()))
	// Output:
	// 1000 per 24h0m0s, burst 1000 (token bucket)
	// 1m26.4s
}

// Limits by customer group: staff has no limit, and banned users get nothing. An
// unknown group gets the zero Limit, which is invalid.
func ExampleUnlimited() {
	plans := map[string]hybridlimit.Limit{
		"staff":  hybridlimit.Unlimited(),
		"banned": hybridlimit.Blocked(),
		"free":   hybridlimit.PerMinute(5),
	}
	for _, plan := range []string{"staff", "banned", "free", "unheard of"} {
		limit := plans[plan]
		fmt.Println(plan, limit.BurstSize(), limit.Validate() == nil)
	}
	// Output:
	// staff 9223372036854775807 true
	// banned 0 true
	// free 5 true
	// unheard of 0 false
}

// Twenty calls of a customer may run at once.
func ExampleConcurrent() {
	limit, err := hybridlimit.ParseLimit("20 concurrent")
	fmt.Println(limit, err, limit == hybridlimit.Concurrent(20))
	// Output: 20 concurrent <nil> true
}

// Blocked is a valid limit. The zero Limit is a mistake, and constructors refuse it.
func ExampleBlocked() {
	fmt.Println(hybridlimit.Blocked(), hybridlimit.Blocked().Validate())
	fmt.Println(hybridlimit.Limit{}.Validate())
	// Output:
	// blocked <nil>
	// hybridlimit: Limit.Rate (0) must be at least 1; Limit.Period (0s) must be at least 1µs
}

func ExampleViolations() {
	var bad adapter.Violations
	bad.Add("Config.Name", "my api", "must match [A-Za-z0-9_.-]+")
	bad.AddLimit(hybridlimit.PerSecond(0))
	fmt.Println(bad.Err("hybrid"))
	// Output: hybrid: Config.Name ("my api") must match [A-Za-z0-9_.-]+; Limit.Rate (0) must be at least 1
}

func ExampleSource_String() {
	res := hybridlimit.Result{Allowed: true, Granted: 1, Source: hybridlimit.SourceLease}
	fmt.Println(res.Allowed, res.Source)
	// Output: true lease
}

// Store a request's id where the request arrives. An id that is too long is an error
// here, so no limiter fails because of it later.
func ExampleWithRequestID() {
	ctx, err := hybridlimit.WithRequestID(context.Background(), "req-7")
	fmt.Println(hybridlimit.RequestID(ctx), err)

	_, err = hybridlimit.WithRequestID(ctx, strings.Repeat("x", 129))
	fmt.Println(errors.Is(err, hybridlimit.ErrInvalid))
	// Output:
	// req-7 <nil>
	// true
}

// An id from outside may have any length: use it if it fits, and continue without an
// id if it does not.
func ExampleWithRequestID_header() {
	for _, header := range []string{"0191f2a4-7c1e", strings.Repeat("spam", 1000), ""} {
		ctx, err := hybridlimit.WithRequestID(context.Background(), header)
		fmt.Printf("%q %t\n", hybridlimit.RequestID(ctx), err == nil)
	}
	// Output:
	// "0191f2a4-7c1e" true
	// "" false
	// "" true
}
