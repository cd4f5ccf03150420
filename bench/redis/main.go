// Redis measures the cost of hybridlimit for a Redis, and for a process that holds many keys. It
// starts its own redis-server.
//
//	make bench-redis                              all of it, into bench/REDIS.md: about four minutes
//	cd bench && go run ./redis                    prints the same
//	cd bench && go run ./redis -dump > old.lua    saves the script of batches
//	cd bench && go run ./redis -against old.lua   compares a changed script with it
//
// Compared subjects are measured in rounds that take turns, and reported as medians: other programs
// usually share the machine, and they slow all subjects of a round alike. CPU is the CPU time of
// the processes, not wall time.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/hybridlimit/hybridlimit/internal/benchkit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// scale is the size of the measurement.
type scale struct {
	rounds                             int
	costOps                            int           // per round and shape
	lasts                              time.Duration // duration of a load in a round
	timing, paced                      int           // calls a second: while single calls are timed, and of the slow load on many keys
	idleKeys                           int
	settle                             time.Duration
	churnKeys, churnEach, churnOnRedis int
	survivalKeys, survivalCalls        int
}

var whole = scale{
	rounds: 6, costOps: 8192, lasts: 400 * time.Millisecond, timing: 4000, paced: 50_000,
	idleKeys: 100_000, settle: 12 * time.Second,
	churnKeys: 1_000_000, churnEach: 200_000, churnOnRedis: 40_000,
	survivalKeys: 100_000, survivalCalls: 20_000,
}

// results has the figures of the page.
type results struct {
	scale     scale
	machine   machine
	costs     []costRow
	idle      idleRows
	decisions []*decisionRow
	survival  []survivalRow
	churn     []churnRow
}

func main() {
	dump := flag.Bool("dump", false, "print the script of batches, and exit")
	old := flag.String("against", "", "compare the script of batches with the one in this file, and exit")
	write := flag.String("write", "", "also write the page to this file")
	rounds := flag.Int("rounds", whole.rounds, "number of interleaved rounds")
	flag.Parse()
	if *dump {
		fmt.Print(lua.Batch.Source)
		return
	}
	size := whole
	size.rounds = *rounds
	if err := run(context.Background(), size, *old, *write); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, size scale, old, write string) error {
	hush()
	srv, err := startServer()
	if err != nil {
		return err
	}
	defer srv.close()
	if old != "" {
		text, err := against(ctx, srv, old, 2*size.rounds+1, size.costOps)
		fmt.Print(text)
		return err
	}
	r, err := measure(ctx, srv, size)
	if err != nil {
		return err
	}
	text := r.page()
	fmt.Print(text)
	if write != "" {
		if err := os.WriteFile(write, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return r.missed()
}

// measure runs all sections. Sections that others could disturb come first.
func measure(ctx context.Context, srv *server, size scale) (r results, err error) {
	r.scale = size
	if r.machine, err = thisMachine(ctx, srv); err != nil {
		return r, err
	}
	if r.idle, err = idle(ctx, srv, size.rounds, size.idleKeys, size.settle); err != nil {
		return r, fmt.Errorf("idle: %w", err)
	}
	if r.costs, err = costs(ctx, srv, size.rounds, size.costOps); err != nil {
		return r, fmt.Errorf("ops: %w", err)
	}
	if r.decisions, err = decisions(ctx, srv, size.rounds, size.lasts, size.timing, size.paced); err != nil {
		return r, fmt.Errorf("decisions: %w", err)
	}
	if r.survival, err = survival(ctx, size.rounds, size.survivalKeys, size.survivalCalls); err != nil {
		return r, fmt.Errorf("survival: %w", err)
	}
	if r.churn, err = churns(ctx, srv, size.rounds, size.churnKeys, size.churnEach, size.churnOnRedis); err != nil {
		return r, fmt.Errorf("churn: %w", err)
	}
	r.machine.loadAfter = benchkit.LoadAverage()
	return r, nil
}

// hush silences go-redis, which logs failed dials, and go-zero, which logs statistics every minute.
func hush() {
	redis.SetLogger(silence{})
	logx.Disable()
	logx.DisableStat()
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
