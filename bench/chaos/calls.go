package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// callsEnv in the environment makes this program a process that runs calls in flight. Its value is the address of Redis.
const callsEnv = "HYBRIDLIMIT_CHAOS_CALLS"

// callsPermits is the limit of calls in flight of the fleet.
const callsPermits = 12

// runCalls runs calls of one key until its input ends. It writes a line for each call that begins or ends: "b <ns> <id> <source>" and
// "e <ns> <id>", by the clock that all processes of a machine share. A call ends in the lines before its permit is released, and
// begins after it was acquired, so more calls never run than the lines show by mistake. An order is a line: "limit <n>".
func runCalls(addr string, orders io.Reader, out io.Writer) error {
	redis.SetLogger(noLog{})
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler), FleetSize: callsProcs})
	if err != nil {
		return err
	}
	limiter, err := hub.Concurrency(hybridlimit.Concurrent(callsPermits), hybrid.ConcurrencyConfig{Name: "calls", MaxWait: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var lines sync.Mutex
	line := func(format string, args ...any) {
		lines.Lock()
		defer lines.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	var callers sync.WaitGroup
	for caller := range 6 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				permit, res, err := limiter.Acquire(ctx, "k")
				if err != nil || !res.Allowed {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), caller, i)
				line("b %d %s %v", time.Now().UnixNano(), id, res.Source)
				lasts := time.Duration(5+(i*37+caller*11)%60) * time.Millisecond
				if i%50 == 7 {
					lasts = 3 * time.Second // longer than a membership without a heartbeat
				}
				select {
				case <-time.After(lasts):
				case <-ctx.Done():
				}
				line("e %d %s", time.Now().UnixNano(), id)
				permit.Release()
			}
		})
	}
	for in := bufio.NewScanner(orders); in.Scan(); {
		if text, ok := strings.CutPrefix(in.Text(), "limit "); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return err
			}
			if err := limiter.SetLimit(hybridlimit.Concurrent(n)); err != nil {
				return err
			}
		}
	}
	cancel()
	callers.Wait()
	return hub.Shutdown(context.Background())
}

// callsProcs is the number of processes of the fleet.
const callsProcs = 3

// span is a call of a process. Times are ns.
type span struct {
	proc       int
	begin, end int64
	fallback   bool
}

// spansOf reads the lines of a process. A call without an end ends at `end`.
func spansOf(proc int, lines []string, end int64) (all []span, err error) {
	open := map[string]int{}
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) < 3 {
			return nil, fmt.Errorf("process %d wrote %q", proc, l)
		}
		at, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return nil, err
		}
		if f[0] == "b" {
			open[f[2]] = len(all)
			all = append(all, span{proc, at, end, f[3] == hybridlimit.SourceFallback.String()})
		} else if i, ok := open[f[2]]; ok {
			all[i].end = at
		}
	}
	return all, nil
}

// mostAtOnce returns the most calls that run at one moment, without those of the fallback.
func mostAtOnce(all []span) (most int) {
	type edge struct {
		at int64
		by int
	}
	var edges []edge
	for _, s := range all {
		if !s.fallback && s.end > s.begin {
			edges = append(edges, edge{s.begin, 1}, edge{s.end, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(min(1, max(-1, a.at-b.at)))
		}
		return a.by - b.by // ends first
	})
	now := 0
	for _, e := range edges {
		now += e.by
		most = max(most, now)
	}
	return most
}
