package circuit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
)

func Example() {
	b, err := circuit.New(breaker.Config{
		Failures: 2,
		OpenFor:  time.Minute,
		OnChange: func(c breaker.Change) { fmt.Println(c.From, "→", c.To, "because:", c.Cause) },
	})
	if err != nil {
		panic(err)
	}

	// ask calls a Redis that does not answer.
	answer := func() error { return context.DeadlineExceeded }
	ask := func() {
		call, ok := b.Begin()
		if !ok {
			fmt.Println("not asked; again in 30 to 90 s:", b.RetryIn() > 29*time.Second && b.RetryIn() < 90*time.Second)
			return
		}
		start := time.Now()
		err := answer()
		call.End(time.Since(start), err)
		fmt.Println("asked:", err)
	}
	ask()
	ask()
	ask()
	// Output:
	// asked: context deadline exceeded
	// closed → open because: context deadline exceeded
	// asked: context deadline exceeded
	// not asked; again in 30 to 90 s: true
}

func ExampleClassify() {
	for _, err := range []error{
		nil,
		redis.Nil,
		redis.ErrNoScript,
		context.Canceled,
		fmt.Errorf("sync: %w", context.DeadlineExceeded),
		errors.New("read tcp: connection reset by peer"),
	} {
		fmt.Println(circuit.Classify(err))
	}
	// Output:
	// success
	// success
	// ignored
	// ignored
	// failure
	// failure
}
