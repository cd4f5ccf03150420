package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// callsEnv in the environment makes this program a process that runs calls in flight. Its value is a spec in JSON.
const callsEnv = "HYBRIDLIMIT_CHAOS_CALLS"

const (
	callsName    = "calls"
	callsPermits = 12 // limit of calls in flight of the fleet
	callsProcs   = 3  // processes of the fleet
	callsCallers = 8  // goroutines of a process that run calls
)

// runCalls runs calls of one key until its input ends. It writes a line for each call that begins or ends: "b <ns> <id> <source>" and
// "e <ns> <id>", and a line "m <ns> 0" or "m <ns> 1" when its membership ends or begins, by the clock that all processes of a machine share. A call ends in the lines before its permit is released, and
// begins after it was acquired, so more calls never run than the lines show by mistake. An order is a line: "limit <n>".
func runCalls(of string, orders io.Reader, out io.Writer) error {
	var w worker
	if err := json.Unmarshal([]byte(of), &w.spec); err != nil {
		return err
	}
	redis.SetLogger(noLog{}) // failed dials are expected
	rdb := w.client()
	defer rdb.Close()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler), FleetSize: w.spec.FleetSize})
	if err != nil {
		return err
	}
	limiter, err := hub.Concurrency(hybridlimit.Concurrent(callsPermits), hybrid.ConcurrencyConfig{Name: callsName, MaxWait: 200 * time.Millisecond})
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
	callers.Go(func() {
		member := false
		for ctx.Err() == nil {
			if is := limiter.Stats().Member; is != member {
				member = is
				line("m %d %d", time.Now().UnixNano(), map[bool]int{true: 1}[is])
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	for caller := range callsCallers {
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
