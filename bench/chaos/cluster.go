package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const (
	masters      = 3
	clusterSlots = 16384
)

// startCluster starts three masters and a replica of each.
func (w *world) startCluster() error {
	ctx := context.Background()
	for range 2 * masters {
		if err := w.add(redistest.WithBus(), redistest.WithArgs(
			"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
		)); err != nil {
			return err
		}
	}
	for i, n := range w.nodes {
		// Distinct from the start, because nodes with equal epochs must agree on
		// new ones first.
		if err := n.do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
		if i < masters {
			if err := n.do(ctx, "CLUSTER", "ADDSLOTSRANGE", i*clusterSlots/masters, (i+1)*clusterSlots/masters-1); err != nil {
				return err
			}
		}
		for _, other := range w.nodes[:i] {
			if err := n.do(ctx, "CLUSTER", "MEET", "127.0.0.1", other.Port(), other.Port()+redistest.BusOffset); err != nil {
				return err
			}
		}
	}
	if err := w.agreed(ctx); err != nil {
		return err
	}
	for i, n := range w.nodes[masters:] {
		id, err := w.nodes[i].admin.ClusterMyID(ctx).Result()
		if err != nil {
			return err
		}
		if err := until(ctx, patience, "a replica is told its master", func() bool {
			return n.do(ctx, "CLUSTER", "REPLICATE", id) == nil
		}); err != nil {
			return err
		}
		if err := w.replicating(ctx, n); err != nil {
			return err
		}
	}
	return until(ctx, patience, "every node knows of three replicas", func() bool {
		for _, n := range w.nodes {
			text, _ := n.admin.ClusterNodes(ctx).Result()
			if strings.Count(text, "slave ") != masters {
				return false
			}
		}
		return w.agreed(ctx) == nil
	})
}

// agreed waits until every running node knows the owner of every slot.
func (w *world) agreed(ctx context.Context) error {
	return until(ctx, patience, "the cluster is up", func() bool {
		for _, n := range w.nodes {
			if !n.Running() {
				continue
			}
			text, err := n.admin.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(text, "cluster_state:ok") ||
				!strings.Contains(text, fmt.Sprintf("cluster_slots_ok:%d", clusterSlots)) {
				return false
			}
		}
		return true
	})
}

// masterOf returns the node that serves a slot now, according to the first node
// that answers.
func (w *world) masterOf(ctx context.Context, slot int) (*node, error) {
	for _, asked := range w.nodes {
		shards, err := asked.admin.ClusterShards(ctx).Result()
		if err != nil {
			continue
		}
		for _, shard := range shards {
			if !slices.ContainsFunc(shard.Slots, func(r redis.SlotRange) bool { return r.Start <= int64(slot) && int64(slot) <= r.End }) {
				continue
			}
			for _, one := range shard.Nodes {
				for _, n := range w.nodes {
					if one.Role == "master" && one.Port == int64(n.Port()) {
						return n, nil
					}
				}
			}
		}
	}
	return nil, fmt.Errorf("nobody serves slot %d", slot)
}
