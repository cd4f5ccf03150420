package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// serverFaults are faults of the process redis-server.
var serverFaults = []*fault{
	{name: "none", strict: true, alone: true},
	{name: "SIGKILL, restart with data", strict: true, proof: failedSyncs, begin: onFirst(kill, restart)},
	{
		name: "SIGKILL, restart empty", proof: resynced, allowed: forgets,
		begin: onFirst(kill, restartEmpty),
	},
	{name: "SIGSTOP 1 s", strict: true, hold: time.Second, proof: failedSyncs, begin: stopped},
	{name: "SIGSTOP 30 s", hold: 30 * time.Second, proof: failedSyncs, begin: stopped, alone: true},
	{name: "LOADING", proof: failedSyncs, begin: loading},
	{name: "BUSY script", begin: shows("errorstats", "errorstat_BUSY", busyScript)},
	{name: "READONLY after a demotion", begin: shows("errorstats", "errorstat_READONLY", demoted)},
	{name: "clock +1 h", allowed: allowance{bursts: 1, steps: true}, begin: clockMoved(3600), clock: true, alone: true},
	{name: "clock -1 h", allowed: allowance{steps: true}, begin: clockMoved(-3600), clock: true, alone: true},
}

// memoryFaults are faults of the memory of Redis.
var memoryFaults = []*fault{
	{name: "FLUSHALL", strict: true, proof: resynced, allowed: forgets, begin: everyNode("FLUSHALL")},
	{
		name:  "SCRIPT FLUSH",
		begin: shows("errorstats", "errorstat_NOSCRIPT", again(100*time.Millisecond, everyNode("SCRIPT", "FLUSH"))),
	},
	{
		name: "FUNCTION FLUSH", functions: true, alone: true, // the error for a missing function has no name of its own
		begin: shows("errorstats", "errorstat_ERR", again(100*time.Millisecond, everyNode("FUNCTION", "FLUSH"))),
	},
	{
		name:  "OOM, noeviction",
		begin: shows("errorstats", "errorstat_OOM", configured(nil, "maxmemory-policy", "noeviction", "maxmemory", "1mb")),
	},
	{name: "allkeys-lru evicts", allowed: evicts, begin: shows("stats", "evicted_keys", evicting)},
	{
		// Alone, because other faults of a mix may take away the answers that it waits for.
		name: "limit of the fleet, then FLUSHALL", alone: true, proof: resynced, allowed: forgets, begin: fleetLimitLost,
	},
	{name: "states of another schema", allowed: forgets, begin: otherSchema},
}

// accessFaults are faults of a Redis that runs and refuses connections or commands.
var accessFaults = []*fault{
	{name: "CLIENT KILL", begin: shows("stats", "total_connections_received", again(50*time.Millisecond, killClients))},
	{
		name: "maxclients reached", proof: failedSyncs,
		begin: configured(killClients, "maxclients", "2"), // the runner's connection, and one more
	},
	{
		name:  "AUTH changed",
		begin: shows("errorstats", "errorstat_NOAUTH", configured(killClients, "requirepass", "another")),
	},
	{name: "ACL without EVALSHA", begin: shows("errorstats", "errorstat_NOPERM", evalDenied)},
}

var killClients = everyNode("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

func kill(n *node) error    { n.Kill(); return nil }
func restart(n *node) error { return n.Restart() }

func restartEmpty(n *node) error {
	if err := n.forget(); err != nil {
		return err
	}
	return n.Restart()
}

var stopped = onFirst(func(n *node) error { return n.Pause() }, func(n *node) error { return n.Resume() })

// loadDelay returns the key-load-delay with which a file of the given size takes about three seconds to load. A
// positive value is µs for each command in the file. A negative value is the number of commands for one nap. No nap is
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
	delay := fmt.Sprint(loadDelay(size))
	err = n.RestartWith("--key-load-delay", delay, "--loading-process-events-interval-bytes", "1024")
	return func() error {
		return until(ctx, patience, "the file is loaded", func() bool {
			return n.info(ctx, "persistence", "loading") == "0"
		})
	}, err
}

// busyScript runs a script that never ends, until it is killed. The script has a connection of its own: with maxclients
// reached, a runner that lost its only connection to the script could not come back to kill it.
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

//go:embed testdata/clock.c
var clockSource string

// movableClock makes a server read its wall clock through testdata/clock.c, and returns the environment for that. It
// needs Linux and a C compiler, which the race detector needs as well.
func movableClock(dir string) ([]string, error) {
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(clockSource), 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a clock that can be moved: %w\n%s", err, out)
	}
	return []string{"LD_PRELOAD=" + library, "CHAOS_CLOCK=" + filepath.Join(dir, "clock")}, setClock(dir, 0)
}

func setClock(dir string, seconds int64) error {
	f, err := os.OpenFile(filepath.Join(dir, "clock"), os.O_CREATE|os.O_WRONLY, 0o600) // never truncated: it is mapped
	if err != nil {
		return err
	}
	defer f.Close()
	return binary.Write(f, binary.NativeEndian, seconds)
}

// clockMoved moves the server's clock by seconds, and does not move it back.
func clockMoved(seconds int64) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		before, err := s.world.nodes[0].admin.Time(ctx).Result()
		if err != nil {
			return nil, err
		}
		if err := setClock(s.dir, seconds); err != nil {
			return nil, err
		}
		after, err := s.world.nodes[0].admin.Time(ctx).Result()
		off := after.Sub(before) - time.Duration(seconds)*time.Second
		if err == nil && off.Abs() > time.Minute {
			err = fmt.Errorf("the server's clock is off by %v", off)
		}
		return nil, err
	}
}

// evicting fills a Redis with a memory limit, so that it evicts keys of the limiter, also those of heartbeats and
// envelopes.
func evicting(ctx context.Context, s *scene) (func() error, error) {
	n := s.world.nodes[0]
	used, err := strconv.Atoi(n.info(ctx, "memory", "used_memory"))
	if err != nil {
		return nil, err
	}
	most := fmt.Sprint(used + 100_000)
	back, err := s.config(ctx, "maxmemory-policy", "allkeys-lru", "maxmemory", most, "maxmemory-samples", "1")
	if err != nil {
		return nil, err
	}
	filler, big := 0, strings.Repeat("x", 10_000)
	stop := repeat(20*time.Millisecond, func() {
		for range 5 {
			filler++
			n.admin.Set(ctx, fmt.Sprint("filler:", filler), big, 5*time.Second)
		}
	})
	return func() error {
		stop()
		return back()
	}, nil
}

// fleetLimitLost halves the limit of the fleet, and wipes Redis when all processes have heard of it. Its end fails if
// the fleet has not told Redis the limit again. The larger limit is the bound, so the promises stay as they are.
func fleetLimitLost(ctx context.Context, s *scene) (func() error, error) {
	h, err := hybrid.NewHub(s.world.nodes[0].admin, hybrid.HubConfig{
		Logger: slog.New(slog.DiscardHandler), SyncTimeout: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	half := s.plan.load.Streams[0].limit()
	half.Rate, half.Burst = half.Rate/2, half.BurstSize()/2
	if err := h.SetFleetLimit(ctx, limiterName, hybrid.FleetLimit{Limit: half}); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	const twoHeartbeats = 2500 * time.Millisecond
	s.sleep(twoHeartbeats)
	if _, err := everyNode("FLUSHALL")(ctx, s); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return func() error {
		err := until(ctx, 10*time.Second, "the fleet tells the wiped Redis its limit", func() bool {
			s.sleep(50 * time.Millisecond)
			f, failed := h.FleetLimit(ctx, limiterName)
			return failed == nil && f.Limit == half
		})
		return errors.Join(err, h.SetFleetLimit(ctx, limiterName, hybrid.FleetLimit{}), h.Close())
	}, nil
}

// otherSchema overwrites the states with states of an earlier and of a later schema version.
func otherSchema(ctx context.Context, s *scene) (func() error, error) {
	return nil, s.world.each(func(n *node) error {
		states, err := n.admin.Keys(ctx, "hl:v2:{*}:"+limiterName+":*").Result()
		if err == nil && len(states) == 0 {
			err = fmt.Errorf("no states to overwrite")
		}
		for i, key := range states {
			if err == nil {
				err = n.do(ctx, "SET", key, fmt.Sprintf("%db1 2 3 4 5", 2*(i%2)), "PX", 60_000)
			}
		}
		return err
	})
}

// evalDenied takes the right to run scripts from the user of the clients.
func evalDenied(ctx context.Context, s *scene) (func() error, error) {
	_, err := everyNode("ACL", "SETUSER", "default", "-evalsha", "-eval")(ctx, s)
	return func() error {
		_, err := everyNode("ACL", "SETUSER", "default", "+@all")(ctx, s)
		return err
	}, err
}
