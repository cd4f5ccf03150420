// Cost limits calls whose cost is known only afterwards, for example calls of a
// language model that are paid by the token. It takes a predicted cost before the
// call, and settles the difference after it. The program starts a Redis written in
// Go, so it needs only Go. settle.go has the code to copy.
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
)

func main() {
	if err := start(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

// start brings a Redis and plays.
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

// quota is 10 000 tokens an hour, all of which may be used at once.
var quota = hybridlimit.PerHour(10_000)

// play sends prompts until the quota is used, and holds what is left against
// what the calls have cost.
func play(ctx context.Context, out io.Writer, rdb redis.UniversalClient) error {
	limiter, err := hybrid.New(rdb, quota, hybrid.Config{Name: "tokens", MaxWait: time.Second})
	if err != nil {
		return err
	}
	defer limiter.Shutdown(ctx)
	if err := limiter.Ready(ctx); err != nil {
		return err
	}
	model := &model{random: rand.New(rand.NewPCG(1, 1))}
	start := time.Now()
	for i := range 100 {
		prompt := prompt{predicted: 200 + int64(i%5)*150}
		used, res, err := ask(ctx, limiter, "ann", prompt, model)
		if err != nil {
			return err
		}
		if !res.Allowed {
			fmt.Fprintf(out, "%2d  predicted %4d  denied: %d left, come back in %v\n", i, prompt.predicted, res.Remaining, res.RetryAfter.Round(time.Second))
			break
		}
		fmt.Fprintf(out, "%2d  predicted %4d  used %4d  left about %5d\n", i, prompt.predicted, used, res.Remaining)
	}
	last, err := limiter.Peek(ctx, "ann")
	if err != nil {
		return err
	}
	refilled := int64(time.Since(start)*time.Duration(quota.Rate)/quota.Period) + 1
	fmt.Fprintf(out, "\nused %d tokens in all; the limiter says %d of %d are left\n", model.used, last.Remaining, quota.Rate)
	if off := last.Remaining - max(0, quota.Rate-model.used); off < -1 || off > refilled {
		return fmt.Errorf("the books are off by %d tokens", off)
	}
	return nil
}

// model stands for the service that is paid.
type model struct {
	random *rand.Rand
	used   int64
}

// Complete uses up to twice what was predicted, or nearly nothing.
func (m *model) Complete(_ context.Context, p prompt) (int64, error) {
	used := 1 + m.random.Int64N(2*p.predicted)
	m.used += used
	return used, nil
}
