// Bench measures hybridlimit-rls beside envoyproxy/ratelimit and beside a gRPC server that decides nothing. It builds
// both services from source, starts them with one redis-server, and calls them in turns.
//
//	make bench-rls                  all of it, into bench/RLS.md: about four minutes
//	cd rls && go run ./bench        prints the same
//	cd rls && go run ./bench -short prints less, after a minute
//
// It needs Linux, for the CPU time of the servers, and a redis-server. The source of envoyproxy/ratelimit comes from
// the module proxy.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// scale is the size of the measurement.
type scale struct {
	rounds  int
	lasts   time.Duration // of a load in a round
	warm    time.Duration // of the load before it, which is not counted
	callers int
	conns   int
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == serveEmpty {
		benchkit.Main("bench", func(context.Context) error { return empty(os.Args[2]) })
		return
	}
	size := scale{rounds: 10, lasts: 3 * time.Second, warm: time.Second}
	write := flag.String("write", "", "also write the page to this `file`")
	short := flag.Bool("short", false, "measure less, for a look")
	flag.IntVar(&size.callers, "callers", 64, "number of callers, each with one call at a time")
	flag.IntVar(&size.conns, "conns", 1, "number of connections of the callers")
	flag.IntVar(&size.rounds, "rounds", size.rounds, "number of interleaved rounds")
	flag.Parse()
	if *short {
		size.rounds, size.lasts, size.warm = min(size.rounds, 3), time.Second, 500*time.Millisecond
	}
	benchkit.Main("bench", func(ctx context.Context) error {
		dir, err := os.MkdirTemp("", "bench-rls")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		r, err := measure(ctx, dir, size)
		if err != nil {
			return err
		}
		return errors.Join(benchkit.Publish(r.page(), *write), benchkit.Missed(r.goals()))
	})
}
