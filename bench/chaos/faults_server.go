package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// serverFaults are faults of the process redis-server.
var serverFaults = []*fault{
	{name: "none", strict: true, alone: true},
	{name: "SIGKILL, restart with data", strict: true, proof: failedSyncs, begin: killed(func(n *node) error { return n.Restart() })},
	{name: "SIGKILL, restart empty", proof: resynced, allowed: forgets, begin: killed(func(n *node) error {
		if err := n.forget(); err != nil {
			return err
		}
		return n.Restart()
	})},
	{name: "SIGSTOP 1 s", strict: true, hold: time.Second, proof: failedSyncs, begin: stopped},
	{name: "SIGSTOP 30 s", hold: 30 * time.Second, proof: failedSyncs, begin: stopped, alone: true},
	{name: "LOADING", proof: failedSyncs, begin: loading},
	{name: "BUSY script", begin: shows("errorstats", "errorstat_BUSY", busyScript)},
	{name: "READONLY after a demotion", begin: shows("errorstats", "errorstat_READONLY", demoted)},
	{name: "clock +1 h", allowed: allowance{bursts: 1, steps: true}, begin: clockMoved(3600), environ: movableClock, alone: true},
	{name: "clock -1 h", allowed: allowance{steps: true}, begin: clockMoved(-3600), environ: movableClock, alone: true},
}

// killed returns a fault that kills the first node, and calls back to restart
// it.
func killed(back func(n *node) error) func(context.Context, *scene) (func() error, error) {
	return func(_ context.Context, s *scene) (func() error, error) {
		n := s.world.nodes[0]
		n.Kill()
		return func() error { return back(n) }, nil
	}
}

func stopped(_ context.Context, s *scene) (func() error, error) {
	n := s.world.nodes[0]
	return n.Resume, n.Pause()
}

// loadDelay returns the key-load-delay with which a file of the given size takes
// about three seconds to load. A positive value is µs for each command in the
// file. A negative value is the number of commands for one nap. No nap is
// shorter than 60 µs, so a large file, late in a soak, needs few naps.
func loadDelay(bytes int64) int64 {
	const takes, nap, command = 3_000_000, 60, 80 // µs, µs, bytes, about
	commands := max(1, bytes/command)
	if each := takes / commands; each >= nap {
		return each
	}
	return -(commands * nap / takes)
}

// loading restarts a node so that it spends a few seconds loading its file.
func loading(ctx context.Context, s *scene) (func() error, error) {
	n := s.world.nodes[0]
	pipe := n.admin.Pipeline()
	for i := range 1500 {
		pipe.Set(ctx, fmt.Sprint("filler:", i), "x", time.Minute)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	size, err := strconv.ParseInt(n.info(ctx, "persistence", "aof_current_size"), 10, 64)
	if err != nil {
		return nil, err
	}
	n.Kill()
	err = n.RestartWith("--key-load-delay", fmt.Sprint(loadDelay(size)), "--loading-process-events-interval-bytes", "1024")
	return func() error {
		return until(ctx, patience, "the file is loaded", func() bool { return n.info(ctx, "persistence", "loading") == "0" })
	}, err
}

// busyScript runs a script that never ends, until it is killed. The script has a
// connection of its own: with maxclients reached, a runner that lost its only
// connection to the script could not come back to kill it.
func busyScript(ctx context.Context, s *scene) (func() error, error) {
	n := s.world.nodes[0]
	if err := n.do(ctx, "CONFIG", "SET", "lua-time-limit", "100"); err != nil {
		return nil, err
	}
	own := adminClient(n.Addr(), runner)
	done := make(chan error, 1)
	go func() { done <- own.Eval(ctx, "while true do end", nil).Err() }()
	err := until(ctx, patience, "the script is busy", func() bool {
		return len(done) > 0 || redis.HasErrorPrefix(n.do(ctx, "PING"), "BUSY")
	})
	if len(done) > 0 { // another fault among others refused or killed it
		err = <-done
	}
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return func() error {
		// Not busy any more: another fault has restarted the server.
		err := until(ctx, patience, "the script is killed", func() bool {
			err := n.do(ctx, "SCRIPT", "KILL")
			return err == nil || redis.HasErrorPrefix(err, "NOTBUSY")
		})
		if err != nil {
			return err
		}
		<-done // an error: it was killed
		return own.Close()
	}, nil
}

// demoted makes the master a replica of an address without a server.
func demoted(ctx context.Context, s *scene) (func() error, error) {
	n := s.world.nodes[0]
	return func() error { return n.do(ctx, "REPLICAOF", "NO", "ONE") }, n.do(ctx, "REPLICAOF", "127.0.0.1", 1)
}
