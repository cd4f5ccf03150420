// Stripe is a service behind four limiters: a rate limit per user, a critical reserve for payments, a limit of
// concurrent requests, and a shedder. A load shows each of them at work, and the same service without them beside it.
// The program brings a stand-in for Redis and needs only Go. The limiters are in service.go, and the load in load.go.
//
//	go run .
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, os.Stdout, 4*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "stripe:", err)
		os.Exit(1)
	}
}

// start starts a Redis and runs play.
func start(ctx context.Context, out io.Writer, lasts time.Duration) error {
	m, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer m.Close()
	m.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	results, alone, err := play(ctx, rdb, classOf, lasts)
	if err != nil {
		return err
	}
	table(out, results)
	if alone > 0 {
		fmt.Fprintf(out, "The machine is busy: %d requests were decided without Redis.\n", alone)
	}
	return nil
}

// names of the subjects, in their order in the results.
var names = []string{"with the limiters", "without"}

// play runs all phases on a service with the limiters and on one without, at the same time. The results are by phase,
// subject and source. alone is the number of decisions without Redis.
func play(ctx context.Context, rdb redis.UniversalClient, class func(route string) string, lasts time.Duration) (results [][][]tally, alone int64, err error) {
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{
		Logger: quiet,
		// The stand-in for Redis shares the processors with the load, so it may be
		// slow without being down. The defaults are for a real Redis.
		SyncTimeout: 2 * time.Second,
		Breaker:     breaker.Config{SlowCall: 2 * time.Second},
	})
	if err != nil {
		return nil, 0, err
	}
	defer hub.Shutdown(context.WithoutCancel(ctx))
	shared, err := newLimits(hub)
	if err != nil {
		return nil, 0, err
	}
	shedder, err := newShedder()
	if err != nil {
		return nil, 0, err
	}
	defer shedder.Close()
	with, without := newDependency(), newDependency()
	protected, err := protect(shared, shedder, class, newService(with))
	if err != nil {
		return nil, 0, err
	}
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := hub.Ready(ready); err != nil {
		return nil, 0, err
	}
	subjects := []subject{{protected, with}, {newService(without), without}}
	for _, p := range phases {
		results = append(results, p.run(ctx, subjects, lasts))
	}
	return results, shared.alone(), ctx.Err()
}

// table prints the table of each phase.
func table(out io.Writer, results [][][]tally) {
	for i, p := range phases {
		fmt.Fprintf(out, "%s\n%-46s%6s%8s%6s%6s%10s\n", p.name, "", "sent", "served", "429", "503", "timed out")
		for j, rows := range results[i] {
			for k, t := range rows {
				fmt.Fprintf(out, "  %-18s %-25s%6d%8d%6d%6d%10d\n", names[j], p.sources[k].name, t.sent, t.served, t.denied, t.shed, t.timedOut)
			}
		}
		fmt.Fprintln(out)
	}
}
