// Redis measures what hybridlimit costs a Redis, and what it costs a process
// that holds many keys, against a redis-server that it starts itself.
//
//	make bench-redis                              all of it, into bench/REDIS.md: about four minutes
//	cd bench && go run ./redis                    prints the same
//	cd bench && go run ./redis -dump > old.lua    keeps the script of batches, and later
//	cd bench && go run ./redis -against old.lua   holds a changed one against it
//
// What is compared is measured in rounds that take turns, and told by medians:
// the machine is rarely ours alone, and what slows a round down slows all that
// is in it. CPU is that of the processes, not the time that went by.
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

// scale is how much is measured.
type scale struct {
	rounds                             int
	costOps                            int           // per round and shape
	lasts                              time.Duration // of a load, per round
	timing, paced                      int           // calls a second, of the load for times and of the slow one on many keys
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

// results are what the page is made of.
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
	dump := flag.Bool("dump", false, "print the script of batches, and stop")
	old := flag.String("against", "", "hold the script of batches against the one in this file, and stop")
	write := flag.String("write", "", "put the page into this file, too")
	rounds := flag.Int("rounds", whole.rounds, "interleaved rounds")
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

// measure runs all sections, those first that another could disturb.
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

// hush silences go-redis, which reports failed dials, and go-zero, which
// reports each minute how it is.
func hush() {
	redis.SetLogger(silence{})
	logx.Disable()
	logx.DisableStat()
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
