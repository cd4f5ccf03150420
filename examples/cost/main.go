// Cost limits calls whose cost is known only afterwards, such as those of a language model that is paid by the token.
// It takes an estimate before the call, which it learns from earlier calls, and settles the difference after it. The
// program brings a stand-in for Redis and needs only Go. settle.go has the interesting part.
//
//	go run ./examples/cost
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/spend"
)

func main() {
	if err := start(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

// start starts a Redis and runs play.
func start(ctx context.Context, out io.Writer) error {
	m, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer m.Close()
	m.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	return play(ctx, out, rdb)
}

// quota is 10 000 tokens an hour. All may be used at once.
var quota = hybridlimit.PerHour(10_000)

// play sends prompts until the quota is used, and then compares the remaining quota with the real cost of the calls.
func play(ctx context.Context, out io.Writer, rdb redis.UniversalClient) error {
	limiter, err := hybrid.New(rdb, quota, hybrid.Config{Name: "tokens", MaxWait: time.Second})
	if err != nil {
		return err
	}
	defer limiter.Shutdown(ctx)
	if err := limiter.Ready(ctx); err != nil {
		return err
	}
	costs, err := spend.NewEstimator(spend.EstimatorConfig{})
	if err != nil {
		return err
	}
	model := &model{random: rand.New(rand.NewPCG(1, 1))}
	start := time.Now()
	for i := range 100 {
		prompt := prompt{ceiling: 800 + int64(i%5)*150}
		used, res, err := ask(ctx, limiter, costs, "ann", prompt, model)
		if err != nil {
			return err
		}
		if !res.Allowed {
			fmt.Fprintf(out, "%2d  denied: %d left, retry in %v\n", i, res.Remaining, res.RetryAfter.Round(time.Second))
			break
		}
		fmt.Fprintf(out, "%2d  at most %4d  used %4d  next estimate %4d\n", i, prompt.ceiling, used, costs.Estimate("model", prompt.ceiling))
	}
	last, err := limiter.Peek(ctx, "ann")
	if err != nil {
		return err
	}
	refilled := int64(time.Since(start)*time.Duration(quota.Rate)/quota.Period) + 1
	fmt.Fprintf(out, "\nused %d tokens in all; the limiter has %d of %d left\n", model.used, last.Remaining, quota.Rate)
	if off := last.Remaining - max(0, quota.Rate-model.used); off < -1 || off > refilled {
		return fmt.Errorf("the limiter is off by %d tokens", off)
	}
	return nil
}

// model stands for a service that is paid by use.
type model struct {
	random *rand.Rand
	used   int64
}

// Complete uses at least one token, mostly few of those that the prompt permits.
func (m *model) Complete(_ context.Context, p prompt) (int64, error) {
	used := 1 + m.random.Int64N(1+m.random.Int64N(p.ceiling))
	m.used += used
	return used, nil
}
