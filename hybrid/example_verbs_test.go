package hybrid_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// start returns a limiter on a Redis inside this program. Its time-outs are
// 10 s, so that the examples print the same on a slow machine.
func start(limit hybridlimit.Limit, cfg hybrid.Config) (l *hybrid.Limiter, stop func()) {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	cfg.MaxWait, cfg.Hub.SyncTimeout = 10*time.Second, 10*time.Second
	cfg.Hub.Logger = quiet
	l, err := hybrid.New(rdb, limit, cfg)
	if err != nil {
		panic(err)
	}
	return l, func() {
		_ = l.Close()
		_ = rdb.Close()
	}
}

// A call may cost more than one unit. For a cost above the burst RetryAfter is
// Never.
func ExampleLimiter_AllowN() {
	limiter, stop := start(hybridlimit.TokenBucket(10, time.Hour, 100), hybrid.Config{Name: "export"})
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
			fmt.Println(rows, "rows: in", res.RetryAfter.Round(time.Hour), "at the earliest")
		}
	}
	// Output:
	// 80 rows: granted
	// 80 rows: in 6h0m0s at the earliest
	// 500 rows: more than the burst of 100
}

// AllowN takes all units or none. A denied call leaves the units to smaller
// calls.
func ExampleLimiter_AllowN_allOrNone() {
	limiter, stop := start(hybridlimit.PerHour(10), hybrid.Config{Name: "batch"})
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

// One call takes all units that are available. Other processes may use the key at
// the same moment, so a caller that wants all units asks until it is denied.
func ExampleLimiter_AllowAtMost() {
	limiter, stop := start(hybridlimit.PerHour(10), hybrid.Config{Name: "mail"})
	defer stop()

	var got int64
	for {
		res, err := limiter.AllowAtMost(context.Background(), "alice", 25-got)
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			break
		}
		got += res.Granted
	}
	fmt.Println(got, "of 25")
	// Output: 10 of 25
}

// A worker sends as much of a queue as the limit allows, and says when it will
// continue.
func ExampleLimiter_AllowAtMost_queue() {
	limiter, stop := start(hybridlimit.TokenBucket(1, time.Hour, 4), hybrid.Config{Name: "webhooks"})
	defer stop()

	queue := []string{"a", "b", "c", "d", "e", "f"}
	for len(queue) > 0 {
		res, err := limiter.AllowAtMost(context.Background(), "tenant-7", int64(len(queue)))
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			fmt.Println(len(queue), "left for", res.RetryAfter.Round(time.Hour), "later")
			return
		}
		for _, hook := range queue[:res.Granted] {
			fmt.Println("send", hook)
		}
		queue = queue[res.Granted:]
	}
	// Output:
	// send a
	// send b
	// send c
	// send d
	// 2 left for 1h0m0s later
}

func ExampleLimiter_AllowLimit() {
	limiter, stop := start(hybridlimit.PerHour(1), hybrid.Config{Name: "api"})
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

// The limit comes from the caller's token. With a better plan a key keeps its
// level, and refills faster from then on.
func ExampleLimiter_AllowLimit_token() {
	limiter, stop := start(hybridlimit.PerHour(1), hybrid.Config{Name: "api"})
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
		fmt.Println(t.subject, res.Allowed, res.Remaining, "of", res.Limit)
	}
	// Output:
	// alice true 1 of 5
	// alice false 1 of 5
	// bob true 96 of 100
	// alice false 1 of 100
}

func ExampleLimiter_Peek() {
	limiter, stop := start(hybridlimit.PerHour(3), hybrid.Config{Name: "api"})
	defer stop()

	for range 2 {
		res, err := limiter.Peek(context.Background(), "alice")
		fmt.Println(res.Allowed, res.Remaining, err)
	}
	// Output:
	// true 3 <nil>
	// true 3 <nil>
}

// A page shows the rest of a quota, and uses none of it.
func ExampleLimiter_Peek_quota() {
	limiter, stop := start(hybridlimit.TokenBucket(100, 100*time.Hour, 100), hybrid.Config{Name: "export"})
	defer stop()

	if _, err := limiter.AllowN(context.Background(), "alice", 30); err != nil {
		panic(err)
	}
	for _, user := range []string{"alice", "bob"} {
		res, err := limiter.Peek(context.Background(), user)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %d of %d left, all of them in %v\n", user, res.Remaining, res.Limit, res.ResetAfter.Round(time.Hour))
	}
	// Output:
	// alice: 70 of 100 left, all of them in 30h0m0s
	// bob: 100 of 100 left, all of them in 0s
}

func ExampleLimiter_Charge() {
	limiter, stop := start(hybridlimit.PerHour(10), hybrid.Config{Name: "api"})
	defer stop()

	res, err := limiter.Charge(context.Background(), "alice", 12) // two units of debt
	fmt.Println(res.Granted, res.Remaining, err)
	// Output: 12 0 <nil>
}

// A request to a language model is admitted for its predicted tokens. Tokens
// beyond the prediction are charged once they have been counted.
func ExampleLimiter_Charge_tokens() {
	limiter, stop := start(hybridlimit.PerHour(1000), hybrid.Config{Name: "tokens"})
	defer stop()
	ctx := context.Background()

	for _, request := range []struct{ predicted, used int64 }{{300, 450}, {400, 700}, {50, 50}} {
		res, err := limiter.AllowN(ctx, "alice", request.predicted)
		if err != nil {
			panic(err)
		}
		if !res.Allowed {
			fmt.Println("denied")
			continue
		}
		left := res.Remaining
		if more := request.used - request.predicted; more > 0 {
			if res, err = limiter.Charge(ctx, "alice", more); err != nil {
				panic(err)
			}
			left = res.Remaining
		}
		fmt.Println("used", request.used, "left", left)
	}
	// Output:
	// used 450 left 550
	// used 700 left 0
	// denied
}

func ExampleLimiter_SetLimit() {
	limiter, stop := start(hybridlimit.PerHour(10), hybrid.Config{Name: "api"})
	defer stop()

	fmt.Println(limiter.SetLimit(hybridlimit.PerHour(20)))
	res, err := limiter.Allow(context.Background(), "alice")
	fmt.Println(res.Remaining, res.Limit, err)
	// Output:
	// <nil>
	// 19 20 <nil>
}

// A limit may change at any time. Used units stay used.
func ExampleLimiter_SetLimit_reload() {
	limiter, stop := start(hybridlimit.PerHour(10), hybrid.Config{Name: "api"})
	defer stop()
	ctx := context.Background()

	if _, err := limiter.AllowN(ctx, "alice", 8); err != nil {
		panic(err)
	}
	for _, perHour := range []int64{20, 1, 0} { // for example from a configuration file
		if err := limiter.SetLimit(hybridlimit.PerHour(perHour)); err != nil {
			fmt.Println(err)
		}
		res, err := limiter.Peek(ctx, "alice")
		fmt.Println(res.Remaining, "of", res.Limit, err)
	}
	// Output:
	// 2 of 20 <nil>
	// 1 of 1 <nil>
	// hybrid: Limit.Rate (0) must be at least 1; Limit.Burst (0) must not be below Config.FallbackFloor (1)
	// 1 of 1 <nil>
}

// hybridlimit.AllowAll calls AllowJoint of the first limiter.
func ExampleLimiter_AllowJoint() {
	limits, _, stop := hubWith(map[string]hybridlimit.Limit{"user": hybridlimit.PerHour(2), "all": hybridlimit.PerHour(100)})
	defer stop()

	for range 3 {
		res, err := hybridlimit.AllowAll(context.Background(),
			hybridlimit.Ask{Limiter: limits["user"], Key: "alice", N: 1},
			hybridlimit.Ask{Limiter: limits["all"], Key: "*", N: 1})
		fmt.Println(res.Allowed, res.Policy, err)
	}
	// Output:
	// true user <nil>
	// true user <nil>
	// false user <nil>
}

// A request counts as one call and by its bytes, or not at all.
func ExampleLimiter_AllowJoint_costs() {
	limits, _, stop := hubWith(map[string]hybridlimit.Limit{"calls": hybridlimit.PerDay(10), "bytes": hybridlimit.PerDay(1000)})
	defer stop()

	for _, size := range []int64{600, 600, 2000, 300} {
		res, err := hybridlimit.AllowAll(context.Background(),
			hybridlimit.Ask{Limiter: limits["calls"], Key: "alice", N: 1},
			hybridlimit.Ask{Limiter: limits["bytes"], Key: "alice", N: size})
		switch {
		case err != nil:
			panic(err)
		case res.Allowed:
			fmt.Println(size, "in")
		case res.RetryAfter == hybridlimit.Never:
			fmt.Println(size, "never:", res.Policy, "are at most", res.Limit)
		default:
			fmt.Println(size, "denied by", res.Policy)
		}
	}
	// Output:
	// 600 in
	// 600 denied by bytes
	// 2000 never: bytes are at most 1000
	// 300 in
}

func ExampleLimiter_History() {
	limiter, stop := start(hybridlimit.SlidingLog(3, time.Hour), hybrid.Config{Name: "login"})
	defer stop()

	for _, id := range []string{"req-1", "req-2"} {
		ctx, err := hybridlimit.WithRequestID(context.Background(), id)
		if err != nil {
			panic(err)
		}
		if _, err := limiter.Allow(ctx, "alice"); err != nil {
			panic(err)
		}
	}
	log, err := limiter.History(context.Background(), "alice")
	for _, a := range log {
		fmt.Println(a.Units, a.RequestID)
	}
	fmt.Println(err)
	// Output:
	// 1 req-1
	// 1 req-2
	// <nil>
}

// A log has no denied calls and no cancelled reservations.
func ExampleLimiter_History_audit() {
	limiter, stop := start(hybridlimit.SlidingLog(3, time.Hour), hybrid.Config{Name: "payouts"})
	defer stop()
	ctx := func(id string) context.Context {
		ctx, err := hybridlimit.WithRequestID(context.Background(), id)
		if err != nil {
			panic(err)
		}
		return ctx
	}

	booked, err := limiter.Reserve(ctx("payout-0"), "acme", 2)
	if err != nil {
		panic(err)
	}
	for i := 1; i < 4; i++ { // one unit is left: the first call takes it, the others are denied
		if _, err := limiter.Allow(ctx(fmt.Sprint("payout-", i)), "acme"); err != nil {
			panic(err)
		}
	}
	if err := booked.Cancel(context.Background()); err != nil {
		panic(err)
	}
	log, err := limiter.History(context.Background(), "acme")
	for _, a := range log {
		fmt.Println(a.RequestID, a.Units)
	}
	fmt.Println(err)
	// Output:
	// payout-1 1
	// <nil>
}
