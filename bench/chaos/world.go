package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// The topologies.
const (
	topologySingle   = "single"
	topologySentinel = "sentinel" // a master, a replica and three Sentinels
	topologyCluster  = "cluster"  // three masters with a replica each
)

const (
	masters        = 3 // of a cluster
	clusterSlots   = 16384
	sentinelMaster = "chaos"
)

// world has the Redis servers of a run.
type world struct {
	topology  string
	nodes     []*node    // masters first
	ways      [][]*proxy // of regions: from a region to the Redis of another one
	sentinels []*redistest.Server
	attic     string
}

// startWorld starts a topology. env is the additional environment of a single server.
func startWorld(topology, attic string, env ...string) (w *world, err error) {
	w = &world{topology: topology, attic: attic}
	switch ctx := context.Background(); topology {
	case topologySingle:
		err = w.add(1, redistest.WithEnv(env...))
	case topologySentinel:
		err = w.startSentinels(ctx)
	case topologyCluster:
		err = w.startCluster(ctx)
	case topologyRegions:
		if err = w.add(len(regionNames)); err == nil {
			err = w.addWays()
		}
	default:
		err = fmt.Errorf("no such topology: %s", topology)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *world) add(count int, opts ...redistest.Option) error {
	for range count {
		n, err := startNode(w.attic, opts...)
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, n)
	}
	return nil
}

func (w *world) close() {
	for _, s := range w.sentinels {
		s.Close()
	}
	for _, p := range slices.Concat(w.ways...) {
		if p != nil {
			p.Stop()
		}
	}
	for _, n := range w.nodes {
		n.close()
	}
}

func (w *world) each(f func(n *node) error) error {
	for _, n := range w.nodes {
		if err := f(n); err != nil {
			return err
		}
	}
	return nil
}

// address gives a worker the addresses of the servers, and the address of each server's proxy.
func (w *world) address(s *spec) {
	s.Topology, s.Dial = w.topology, map[string]string{}
	for _, n := range w.nodes {
		s.Addrs = append(s.Addrs, n.Addr())
		s.Dial[n.Addr()] = n.proxy.Listen
	}
	if w.topology == topologySentinel {
		s.Addrs = nil
		for _, n := range w.sentinels {
			s.Addrs = append(s.Addrs, n.Addr())
		}
	}
}

// until polls cond. If cond is not true in time, the error names the event that did not happen.
func until(ctx context.Context, within time.Duration, what string, cond func() bool) error {
	for deadline := time.Now().Add(within); !cond(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("did not happen within %v: %s", within, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// well waits until the current master of every slot that the limiter uses takes a write through its proxy.
func (w *world) well(ctx context.Context) error {
	var s spec
	w.address(&s)
	rdb := s.client()
	defer rdb.Close()
	var last error
	err := until(ctx, patience, "every slot takes writes", func() bool {
		for tag := range lua.DefaultTags {
			one, cancel := context.WithTimeout(ctx, time.Second)
			last = rdb.Set(one, fmt.Sprintf("probe:{%d}", tag), "1", time.Minute).Err()
			cancel()
			if last != nil {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// startSentinels starts a master, its replica and three Sentinels that declare a master down after half a second.
func (w *world) startSentinels(ctx context.Context) error {
	if err := w.add(2, redistest.WithArgs("--repl-diskless-sync-delay", "0")); err != nil {
		return err
	}
	master, replica := w.nodes[0], w.nodes[1]
	if err := replica.do(ctx, "REPLICAOF", "127.0.0.1", master.Port()); err != nil {
		return err
	}
	if err := w.replicating(ctx, replica); err != nil {
		return err
	}
	conf := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 3000\n", sentinelMaster, master.Port())
	for range 3 {
		s, err := redistest.Start(redistest.WithConfig(conf), redistest.WithArgs("--sentinel"))
		if err != nil {
			return err
		}
		w.sentinels = append(w.sentinels, s)
	}
	for _, s := range w.sentinels {
		rdb := adminClient(s.Addr(), "")
		defer rdb.Close()
		if err := until(ctx, patience, "Sentinels know of each other and of the replica", func() bool {
			text, _ := rdb.Info(ctx, "sentinel").Result()
			return strings.Contains(text, "slaves=1,sentinels=3")
		}); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) replicating(ctx context.Context, n *node) error {
	return until(ctx, patience, "a replica follows its master", func() bool {
		return n.info(ctx, "replication", "master_link_status") == "up"
	})
}

// startCluster starts three masters and a replica of each.
func (w *world) startCluster(ctx context.Context) error {
	if err := w.add(2*masters, redistest.WithBus(), redistest.WithArgs(
		"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
		"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
	)); err != nil {
		return err
	}
	for i, n := range w.nodes {
		// Distinct from the start, because nodes with equal epochs must agree on new ones first.
		words := [][]any{{"SET-CONFIG-EPOCH", i + 1}}
		if i < masters {
			first, last := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
			words = append(words, []any{"ADDSLOTSRANGE", first, last})
		}
		for _, other := range w.nodes[:i] {
			words = append(words, []any{"MEET", "127.0.0.1", other.Port(), other.Port() + redistest.BusOffset})
		}
		for _, more := range words {
			if err := n.do(ctx, append([]any{"CLUSTER"}, more...)...); err != nil {
				return err
			}
		}
	}
	if err := w.agreed(ctx); err != nil {
		return err
	}
	for i, n := range w.nodes[masters:] {
		if err := until(ctx, patience, "a replica is told its master", func() bool {
			id := w.nodes[i].admin.ClusterMyID(ctx).Val() // Redis refuses an empty one
			return n.do(ctx, "CLUSTER", "REPLICATE", id) == nil
		}); err != nil {
			return err
		}
		if err := w.replicating(ctx, n); err != nil {
			return err
		}
	}
	return until(ctx, patience, "every node knows of three replicas", func() bool {
		return w.agreed(ctx) == nil && !slices.ContainsFunc(w.nodes, func(n *node) bool {
			text, _ := n.admin.ClusterNodes(ctx).Result()
			return strings.Count(text, "slave ") != masters
		})
	})
}

// agreed waits until every running node knows the owner of every slot.
func (w *world) agreed(ctx context.Context) error {
	return until(ctx, patience, "the cluster is up", func() bool {
		return !slices.ContainsFunc(w.nodes, func(n *node) bool {
			if !n.Running() {
				return false
			}
			text, err := n.admin.ClusterInfo(ctx).Result()
			return err != nil || !strings.Contains(text, "cluster_state:ok") ||
				!strings.Contains(text, fmt.Sprintf("cluster_slots_ok:%d", clusterSlots))
		})
	})
}

// masterOf returns the node that serves a slot now, according to the first node that answers.
func (w *world) masterOf(ctx context.Context, slot int64) (*node, error) {
	for _, asked := range w.nodes {
		shards, _ := asked.admin.ClusterShards(ctx).Result() // none after an error
		for _, shard := range shards {
			if !slices.ContainsFunc(shard.Slots, func(r redis.SlotRange) bool { return r.Start <= slot && slot <= r.End }) {
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

// failedOver waits until another node serves in place of the first one.
func (w *world) failedOver(ctx context.Context) error {
	if w.topology == topologyCluster {
		return until(ctx, patience, "the replica takes over", func() bool {
			return w.nodes[masters].info(ctx, "replication", "role") == "master"
		})
	}
	rdb := redis.NewSentinelClient(&redis.Options{Addr: w.sentinels[0].Addr()})
	defer rdb.Close()
	return until(ctx, patience, "Sentinels promote the replica", func() bool {
		one, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		addr, err := rdb.GetMasterAddrByName(one, sentinelMaster).Result()
		return err == nil && addr[1] != fmt.Sprint(w.nodes[0].Port())
	})
}
