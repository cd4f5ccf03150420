package global_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
)

// standIn starts a Redis inside this program, so that the examples run anywhere. Its
// clock stands still, so that they always print the same. A program uses its own Redis.
func standIn() (rdb *redis.Client, stop func()) {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	m.SetTime(time.Unix(1_763_000_000, 0))
	rdb = redis.NewClient(&redis.Options{Addr: m.Addr(), DialerRetries: 1, ReadTimeout: 10 * time.Second})
	return rdb, func() {
		_ = rdb.Close()
		m.Close()
	}
}

func ExampleNew() {
	rdb, stop := standIn()
	defer stop()

	limiter, err := global.New(rdb, hybridlimit.PerMinute(2), global.Config{
		Name:    "password-reset",
		Timeout: 10 * time.Second, // for the example; the default is 250 ms
	})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	for range 3 {
		res, err := limiter.Allow(context.Background(), "alice@example.com")
		if err != nil {
			panic(err)
		}
		if res.Allowed {
			fmt.Println("send the mail;", res.Remaining, "left")
		} else {
			fmt.Println("try again in", res.RetryAfter)
		}
	}
	// Output:
	// send the mail; 1 left
	// send the mail; 0 left
	// try again in 30s
}

// A call may cost more than one unit. A cost above the burst is denied for ever:
// RetryAfter is Never.
func ExampleLimiter_AllowN() {
	limiter, stop := start(hybridlimit.TokenBucket(10, time.Second, 100), global.Config{Name: "export"})
	defer stop()

	for _, rows := range []int64{80, 80, 500} {
		res, err := limiter.AllowN(context.Background(), "tenant-7", rows)
		switch {
		case err != nil:
			panic(err)
		case res.Allowed:
			fmt.Println(rows, "rows: granted")
		case res.RetryAfter == hybridlimit.Never:
			fmt.Println(rows, "rows: more than the burst of", res.Limit)
		default:
			fmt.Println(rows, "rows: in", res.RetryAfter)
		}
	}
	// Output:
	// 80 rows: granted
	// 80 rows: in 6s
	// 500 rows: more than the burst of 100
}

// AllowN takes all units or none. A denied call leaves the units to smaller calls.
func ExampleLimiter_AllowN_allOrNone() {
	limiter, stop := start(hybridlimit.PerHour(10), global.Config{Name: "batch"})
	defer stop()

	for _, n := range []int64{7, 5, 3} {
		res, err := limiter.AllowN(context.Background(), "alice", n)
		fmt.Println(n, res.Allowed, res.Remaining, err)
	}
	// Output:
	// 7 true 3 <nil>
	// 5 false 3 <nil>
	// 3 true 0 <nil>
}

// If Redis does not answer, the error matches ErrUnavailable. The Result beside it denies
// by default, and admits with FailOpen.
func ExampleConfig_failOpen() {
	rdb, stop := standIn()
	stop()
	for _, open := range []bool{false, true} {
		limiter, err := global.New(rdb, hybridlimit.PerSecond(10), global.Config{Name: "api", FailOpen: open})
		if err != nil {
			panic(err)
		}
		res, err := limiter.Allow(context.Background(), "alice")
		fmt.Println(errors.Is(err, hybridlimit.ErrUnavailable), res.Allowed, res.Source)
		_ = limiter.Close()
	}
	// Output:
	// true false fallback
	// true true fallback
}
