package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// memoryFaults are faults of the memory of Redis.
var memoryFaults = []*fault{
	{name: "FLUSHALL", strict: true, proof: resynced, allowed: forgets, begin: everyNode("FLUSHALL")},
	{name: "SCRIPT FLUSH", begin: shows("errorstats", "errorstat_NOSCRIPT", again(100*time.Millisecond, everyNode("SCRIPT", "FLUSH")))},
	// The error for a missing function has no name of its own.
	{name: "FUNCTION FLUSH", functions: true, alone: true, begin: shows("errorstats", "errorstat_ERR", again(100*time.Millisecond, everyNode("FUNCTION", "FLUSH")))},
	{name: "OOM, noeviction", begin: shows("errorstats", "errorstat_OOM", func(ctx context.Context, s *scene) (func() error, error) {
		return s.config(ctx, "maxmemory-policy", "noeviction", "maxmemory", "1mb")
	})},
	{name: "allkeys-lru evicts", allowed: forgets, begin: shows("stats", "evicted_keys", evicting)},
	// Alone, because other faults of a mix may take away the answers that it waits for.
	{name: "limit of the fleet, then FLUSHALL", alone: true, proof: resynced, allowed: forgets, begin: fleetLimitLost},
	{name: "states of another schema", allowed: forgets, begin: otherSchema},
}

// evicting fills a Redis with a memory limit, so that it evicts keys of the
// limiter, also those of heartbeats and envelopes.
func evicting(ctx context.Context, s *scene) (func() error, error) {
	n := s.world.nodes[0]
	used, err := strconv.Atoi(n.info(ctx, "memory", "used_memory"))
	if err != nil {
		return nil, err
	}
	back, err := s.config(ctx, "maxmemory-policy", "allkeys-lru", "maxmemory", fmt.Sprint(used+100_000), "maxmemory-samples", "1")
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

// fleetLimitLost halves the limit of the fleet, and wipes Redis when all processes
// have heard of it. Its end fails if the fleet has not told Redis the limit again. The
// larger limit is the bound, so the promises stay as they are.
func fleetLimitLost(ctx context.Context, s *scene) (func() error, error) {
	h, err := hybrid.NewHub(s.world.nodes[0].admin, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler), SyncTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	half := s.plan.load.Streams[0].limit()
	half.Rate, half.Burst = half.Rate/2, half.BurstSize()/2
	if err := h.SetFleetLimit(ctx, limiterName, hybrid.FleetLimit{Limit: half}); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	const twoHeartbeats = 2500 * time.Millisecond
	time.Sleep(twoHeartbeats)
	if err := s.each(func(n *node) error { return n.do(ctx, "FLUSHALL") }); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return func() error {
		err := fmt.Errorf("the fleet has not told the wiped Redis its limit")
		for until := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(until); {
			time.Sleep(50 * time.Millisecond)
			if f, failed := h.FleetLimit(ctx, limiterName); failed == nil && f.Limit == half {
				err = nil
			}
		}
		return errors.Join(err, h.SetFleetLimit(ctx, limiterName, hybrid.FleetLimit{}), h.Close())
	}, nil
}

// otherSchema overwrites the states with states of an earlier and of a later
// schema version.
func otherSchema(ctx context.Context, s *scene) (func() error, error) {
	return nil, s.each(func(n *node) error {
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
