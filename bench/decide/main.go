// Decide compares a decision of package global with one of go-redis/redis_rate: decisions a second,
// the time of a call, the CPU of Redis and of the process, and allocations. It starts its own
// redis-server.
//
//	cd bench && go run ./decide
//	cd bench && go run ./decide -callers 64 -keys 5000 -rounds 9
//
// The limiters take turns in short rounds, and each figure is the median of its rounds: other
// programs usually share the machine, and they slow both alike. Only the ratios have a meaning.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func main() {
	callers := flag.String("callers", "1,8,64,512", "numbers of goroutines that ask at once")
	keys := flag.String("keys", "1,5000", "numbers of keys that they ask for")
	rounds := flag.Int("rounds", 9, "number of rounds of each")
	lasts := flag.Duration("lasts", 300*time.Millisecond, "duration of a round")
	ends := flag.Bool("ends", false, "ask with a context that can be cancelled, as that of an HTTP request")
	flag.Parse()
	ctx, cancel := context.Background(), func() {}
	if *ends {
		ctx, cancel = context.WithCancel(ctx)
	}
	err := run(ctx, ints(*callers), ints(*keys), *rounds, *lasts)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "decide:", err)
		os.Exit(1)
	}
}

func ints(list string) (out []int) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "decide: %q is no positive number\n", text)
			os.Exit(2)
		}
		out = append(out, n)
	}
	return out
}

// rate is the limit of each key, which no load reaches. With a much higher one, redis_rate would
// write nothing: an interval of a nanosecond is lost in its number of seconds.
const rate = 1_000_000

// allow asks for one unit of a key.
type allow func(ctx context.Context, key string) error

func run(ctx context.Context, callers, keys []int, rounds int, lasts time.Duration) error {
	srv, err := redistest.Start()
	if err != nil {
		return err
	}
	defer srv.Close()
	admin := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer admin.Close()
	client := func() *redis.Client { return redis.NewClient(&redis.Options{Addr: srv.Addr(), PoolSize: 64}) }

	mine, theirs := client(), client()
	defer mine.Close()
	defer theirs.Close()
	l, err := global.New(mine, hybridlimit.PerSecond(rate), global.Config{Name: "global", Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer l.Close()
	other, limit := redis_rate.NewLimiter(theirs), redis_rate.PerSecond(rate)
	subjects := []subject{
		{"global", func(ctx context.Context, key string) error { _, err := l.Allow(ctx, key); return err }},
		{"redis_rate", func(ctx context.Context, key string) error { _, err := other.Allow(ctx, key, limit); return err }},
	}

	fmt.Println("callers keys | decisions/s global, redis_rate, ratio | p50 µs | p99 µs | Redis CPU µs | process CPU µs | allocations")
	for _, n := range keys {
		for _, c := range callers {
			rows, err := compare(ctx, admin, subjects, load{callers: c, keys: n, lasts: lasts}, rounds)
			if err != nil {
				return err
			}
			fmt.Printf("%7d %4d | %s\n", c, n, line(rows[0], rows[1]))
		}
	}
	return nil
}

// line returns the figures of two rows, and their ratios.
func line(a, b figures) string {
	var out []string
	for i := range a {
		out = append(out, fmt.Sprintf("%8.4g %8.4g ×%-5.3g", a[i], b[i], a[i]/b[i]))
	}
	return strings.Join(out, " | ")
}
