package local_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// open makes a limiter. It panics where a program would return the error.
func open(limit hybridlimit.Limit, cfg local.Config) *local.Limiter {
	limiter, err := local.New(limit, cfg)
	if err != nil {
		panic(err)
	}
	return limiter
}

// ok returns a result. It panics where a program would return the error.
func ok[T any](res T, err error) T {
	if err != nil {
		panic(err)
	}
	return res
}

func ExampleLimiter_AllowAtMost() {
	limiter := open(hybridlimit.PerHour(10), local.Config{})
	for range 3 {
		res := ok(limiter.AllowAtMost(context.Background(), "mailing", 7))
		fmt.Println("sending", res.Granted)
	}
	// Output:
	// sending 7
	// sending 3
	// sending 0
}

// Send the part of a batch that the limit admits now. RetryAfter is the time until the
// next part can be sent.
func ExampleLimiter_AllowAtMost_batch() {
	limiter := open(hybridlimit.FixedWindow(4, 1000*time.Hour), local.Config{})
	batch := []string{"a", "b", "c", "d", "e", "f"}
	for len(batch) > 0 {
		res := ok(limiter.AllowAtMost(context.Background(), "mailing", int64(len(batch))))
		if !res.Allowed {
			fmt.Println(len(batch), "wait for the next window:", res.RetryAfter == res.ResetAfter)
			break
		}
		fmt.Println(batch[:res.Granted])
		batch = batch[res.Granted:]
	}
	// Output:
	// [a b c d]
	// 2 wait for the next window: true
}

func ExampleLimiter_PeekN() {
	limiter := open(hybridlimit.PerHour(10), local.Config{})
	ok(limiter.AllowN(context.Background(), "alice", 8))
	for _, cost := range []int64{2, 3, 11} {
		res := ok(limiter.PeekN(context.Background(), "alice", cost))
		fmt.Println(cost, res.Allowed, res.RetryAfter.Round(time.Minute) == 6*time.Minute, res.RetryAfter == hybridlimit.Never)
	}
	// Output:
	// 2 true false false
	// 3 false true false
	// 11 false false true
}

// For a queue, PeekN also returns the delay that the call would get.
func ExampleLimiter_PeekN_queue() {
	limiter := open(hybridlimit.LeakyQueue(1, time.Hour, 5), local.Config{})
	ok(limiter.AllowN(context.Background(), "jobs", 3))
	res := ok(limiter.PeekN(context.Background(), "jobs", 1))
	fmt.Println(res.Allowed, "after", res.Delay.Round(time.Minute))
	// Output: true after 3h0m0s
}

// The limit of the call comes from the caller's token.
func ExampleLimiter_AllowLimit() {
	limiter := open(hybridlimit.PerHour(1), local.Config{})
	paid := hybridlimit.PerHour(3)
	for range 4 {
		res := ok(limiter.AllowLimit(context.Background(), "alice", 1, paid))
		fmt.Println(res.Allowed, res.Remaining, "of", res.Limit)
	}
	// Output:
	// true 2 of 3
	// true 1 of 3
	// true 0 of 3
	// false 0 of 3
}

func ExampleLimiter_AllowLimit_invalid() {
	limiter := open(hybridlimit.PerHour(1), local.Config{})
	_, err := limiter.AllowLimit(context.Background(), "alice", 1, hybridlimit.FixedWindow(10, time.Hour))
	fmt.Println(err)
	// Output: local: Limit.Algorithm (fixed window) must be the limiter's (token bucket)
}

// A larger limit refills no key that was used: such a key refills at the new rate.
func ExampleLimiter_SetLimit() {
	ctx := context.Background()
	limiter := open(hybridlimit.PerHour(10), local.Config{})
	ok(limiter.AllowN(ctx, "alice", 10))
	if err := limiter.SetLimit(hybridlimit.PerHour(100)); err != nil {
		panic(err)
	}
	fmt.Println("alice:", ok(limiter.Peek(ctx, "alice")).Remaining, "left")
	fmt.Println("bob:", ok(limiter.Peek(ctx, "bob")).Remaining, "left")
	// Output:
	// alice: 0 left
	// bob: 100 left
}

// Units that were used under the old limit still count in the window.
func ExampleLimiter_SetLimit_window() {
	ctx := context.Background()
	limiter := open(hybridlimit.SlidingLog(10, time.Hour), local.Config{})
	ok(limiter.AllowN(ctx, "alice", 10))
	if err := limiter.SetLimit(hybridlimit.SlidingLog(15, time.Hour)); err != nil {
		panic(err)
	}
	fmt.Println("alice:", ok(limiter.Peek(ctx, "alice")).Remaining, "left")
	// Output: alice: 5 left
}

func ExampleLimiter_Reserve() {
	ctx := context.Background()
	limiter := open(hybridlimit.TokenBucket(1, time.Minute, 2), local.Config{})
	for range 5 {
		r := ok(limiter.Reserve(ctx, "report", 1))
		if r.Allowed {
			fmt.Println("start in", r.Delay.Round(time.Minute))
		} else {
			fmt.Println("ask again in", r.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// start in 0s
	// start in 0s
	// start in 1m0s
	// start in 2m0s
	// ask again in 1m0s
}

// Cancel gives unneeded units back.
func ExampleLimiter_Reserve_cancel() {
	ctx := context.Background()
	limiter := open(hybridlimit.SlidingWindow(5, time.Hour), local.Config{})
	r := ok(limiter.Reserve(ctx, "report", 5))
	fmt.Println(ok(limiter.Allow(ctx, "report")).Allowed)
	if err := r.Cancel(ctx); err != nil {
		panic(err)
	}
	fmt.Println(ok(limiter.Allow(ctx, "report")).Allowed)
	// Output:
	// false
	// true
}

// A queue spaces calls out evenly, for any pattern of arrivals.
func ExampleLimiter_Wait() {
	limiter := open(hybridlimit.LeakyQueue(100, time.Second, 10), local.Config{})
	start := time.Now()
	for range 4 {
		ok(limiter.Wait(context.Background(), "crawler", 1))
	}
	fmt.Println("three intervals of 10 ms:", time.Since(start) >= 30*time.Millisecond)
	// Output: three intervals of 10 ms: true
}

// A wait beyond the deadline fails at once.
func ExampleLimiter_Wait_deadline() {
	limiter := open(hybridlimit.PerHour(1), local.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ok(limiter.Wait(ctx, "alice", 1))
	_, err := limiter.Wait(ctx, "alice", 1)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), ctx.Err())
	_, err = limiter.Wait(ctx, "alice", 2)
	fmt.Println(err)
	// Output:
	// true <nil>
	// local: hybridlimit: cost exceeds the burst: 2 of 1
}

// The cost is known only after the work.
func ExampleLimiter_Charge() {
	ctx := context.Background()
	limiter := open(hybridlimit.PerHour(1000), local.Config{})
	ok(limiter.AllowN(ctx, "alice", 100)) // an estimate, in tokens of a language model
	if _, err := limiter.Charge(ctx, "alice", 350); err != nil {
		panic(err)
	}
	fmt.Println(ok(limiter.Peek(ctx, "alice")).Remaining)
	// Output: 550
}

// Charge takes units that the key does not have. They are a debt, which the refill
// pays first.
func ExampleLimiter_Charge_debt() {
	ctx := context.Background()
	limiter := open(hybridlimit.PerHour(60), local.Config{})
	if _, err := limiter.Charge(ctx, "alice", 90); err != nil {
		panic(err)
	}
	res := ok(limiter.Allow(ctx, "alice"))
	fmt.Println(res.Allowed, "for", res.RetryAfter.Round(time.Minute))
	// Output: false for 31m0s
}

// Refund gives back the units of work that did not happen.
func ExampleLimiter_Refund() {
	ctx := context.Background()
	limiter := open(hybridlimit.PerHour(10), local.Config{})
	ok(limiter.AllowN(ctx, "alice", 8))
	if _, err := limiter.Refund(ctx, "alice", 5); err != nil {
		panic(err)
	}
	fmt.Println(ok(limiter.Peek(ctx, "alice")).Remaining)
	// Output: 7
}

// A refund never gives a key more units than a full one has.
func ExampleLimiter_Refund_full() {
	ctx := context.Background()
	limiter := open(hybridlimit.FixedWindow(10, time.Hour), local.Config{})
	ok(limiter.Allow(ctx, "alice"))
	if _, err := limiter.Refund(ctx, "alice", 1000); err != nil {
		panic(err)
	}
	fmt.Println(ok(limiter.Peek(ctx, "alice")).Remaining)
	// Output: 10
}

func ExampleLimiter_Allow() {
	ctx := context.Background()
	limiter := open(hybridlimit.FixedWindow(2, 1000*time.Hour), local.Config{})
	for range 3 {
		res := ok(limiter.Allow(ctx, "alice"))
		fmt.Println(res.Allowed, res.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

// A queue admits calls while it has room. Delay is the time until a call may start.
func ExampleLimiter_Allow_queue() {
	ctx := context.Background()
	limiter := open(hybridlimit.LeakyQueue(1, time.Hour, 3), local.Config{})
	for range 4 {
		res := ok(limiter.Allow(ctx, "jobs"))
		fmt.Println(res.Allowed, res.Delay.Round(time.Minute), res.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 0s 0s
	// true 1h0m0s 0s
	// true 2h0m0s 0s
	// false 0s 1h0m0s
}

// hybridlimit.AllowAll calls AllowJoint of the first limiter.
func ExampleLimiter_AllowJoint() {
	perUser := open(hybridlimit.PerHour(2), local.Config{Name: "user"})
	all := open(hybridlimit.PerHour(100), local.Config{Name: "all"})
	for range 3 {
		res := ok(hybridlimit.AllowAll(context.Background(),
			hybridlimit.Ask{Limiter: perUser, Key: "alice", N: 1},
			hybridlimit.Ask{Limiter: all, Key: "*", N: 1}))
		fmt.Println(res.Allowed, res.Policy, res.Remaining)
	}
	fmt.Println(ok(all.Peek(context.Background(), "*")).Remaining) // the third call took nothing from this limit
	// Output:
	// true user 1
	// true user 0
	// false user 0
	// 98
}

// A request counts as one call and as many bytes, or not at all.
func ExampleLimiter_AllowJoint_costs() {
	calls := open(hybridlimit.PerDay(10), local.Config{Name: "calls"})
	bytes := open(hybridlimit.PerDay(1000), local.Config{Name: "bytes"})
	for _, size := range []int64{600, 600, 2000, 300} {
		res := ok(hybridlimit.AllowAll(context.Background(),
			hybridlimit.Ask{Limiter: calls, Key: "alice", N: 1},
			hybridlimit.Ask{Limiter: bytes, Key: "alice", N: size}))
		switch {
		case res.Allowed:
			fmt.Println(size, "in; fewest left:", res.Remaining, res.Policy)
		case res.RetryAfter == hybridlimit.Never:
			fmt.Println(size, "never:", res.Policy, "are at most", res.Limit)
		default:
			fmt.Println(size, "denied by", res.Policy)
		}
	}
	// Output:
	// 600 in; fewest left: 9 calls
	// 600 denied by bytes
	// 2000 never: bytes are at most 1000
	// 300 in; fewest left: 8 calls
}

func ExampleLimiter_History() {
	limiter := open(hybridlimit.SlidingLog(3, time.Hour), local.Config{})
	for _, id := range []string{"req-1", "req-2"} {
		ctx := ok(hybridlimit.WithRequestID(context.Background(), id))
		ok(limiter.Allow(ctx, "alice"))
	}
	for _, a := range ok(limiter.History(context.Background(), "alice")) {
		fmt.Println(a.Units, a.RequestID, time.Since(a.At) < time.Minute)
	}
	// Output:
	// 1 req-1 true
	// 1 req-2 true
}

// The history holds neither denied calls nor units that were given back.
func ExampleLimiter_History_audit() {
	limiter := open(hybridlimit.SlidingLog(3, time.Hour), local.Config{})
	ctx := func(id string) context.Context { return ok(hybridlimit.WithRequestID(context.Background(), id)) }

	ok(limiter.AllowN(ctx("payout-0"), "acme", 1))
	booked := ok(limiter.Reserve(ctx("payout-1"), "acme", 1))
	ok(limiter.AllowN(ctx("payout-2"), "acme", 2)) // denied: one is left
	ok(limiter.AllowN(ctx("payout-3"), "acme", 1))
	if err := booked.Cancel(context.Background()); err != nil {
		panic(err)
	}
	for _, a := range ok(limiter.History(context.Background(), "acme")) {
		fmt.Println(a.RequestID, a.Units)
	}
	// Output:
	// payout-0 1
	// payout-3 1
}
