package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/lua"
)

type attributes = map[string]int // of a toxic

// networkFaults are faults of the network between clients and servers.
var networkFaults = []*fault{
	{
		name: "latency 100 ms ± 50", strict: true, proof: failedSyncs,
		begin: toxic("latency", replies, attributes{"latency": 100, "jitter": 50}),
	},
	{name: "connections reset", proof: failedSyncs, begin: flicker("reset_peer", requests, attributes{"timeout": 0})},
	{
		name: "replies lost after execution", strict: true, proof: seenBefore,
		begin: flicker("timeout", replies, attributes{"timeout": 20}),
	},
	{name: "requests lost", proof: failedSyncs, begin: flicker("timeout", requests, attributes{"timeout": 20})},
	{name: "half-open TCP, no replies", proof: failedSyncs, begin: toxic("timeout", replies, attributes{"timeout": 0})},
	{name: "half-open TCP, no requests", proof: failedSyncs, begin: toxic("timeout", requests, attributes{"timeout": 0})},
	{
		name:  "sliced into packets of 20 bytes",
		begin: toxic("slicer", replies, attributes{"average_size": 20, "size_variation": 10, "delay": 100}),
	},
}

// countedOut is the allowance for a client that the others do not count for a while.
var countedOut = allowance{alone: true}

// clientFaults are faults of the limiting processes.
var clientFaults = []*fault{
	{name: "client paused 4 s", strict: true, hold: 4 * time.Second, begin: pausedClient, allowed: countedOut},
	{name: "client paused 30 s", hold: 30 * time.Second, begin: pausedClient, allowed: countedOut, alone: true},
	{name: "client SIGKILLed", strict: true, alone: true, begin: func(_ context.Context, s *scene) (func() error, error) {
		return nil, s.anyClient().kill()
	}},
}

// classLoad has one key with two classes. The critical calls are 60 % of the rate: steady ones, and two spikes of 12
// calls a second in each process. All spikes at once are less than the floor. The rest asks for four times the rate. In
// an outage the critical calls use up more than a share of the burst, so a second share for them would break its bound.
var classLoad = load{
	Goroutines: 2,
	Classes:    []hybrid.Class{{Name: "rest", Floor: 0.2}},
	Streams: []stream{
		{Prefix: "shop", Keys: 1, PerSecond: 176, Rate: 1000, Burst: 400},
		{Prefix: "shop", Keys: 1, PerSecond: 24, Rate: 1000, Burst: 400, AtOnce: 12},
		{Prefix: "shop", Keys: 1, PerSecond: 1300, Rate: 1000, Burst: 400, Class: "rest"},
	},
}

// classFaults are outages of a limiter with classes.
var classFaults = []*fault{
	{
		name: "critical reserve, SIGKILL of Redis", load: &classLoad, hold: 1500 * time.Millisecond, alone: true,
		proof: failedSyncs, begin: onFirst(kill, restart),
	},
	{
		name: "critical reserve, SIGKILL of Redis, then of a client", load: &classLoad, mode: hybrid.ModeStrict,
		hold: time.Second, alone: true, proof: failedSyncs, begin: func(_ context.Context, s *scene) (func() error, error) {
			n := s.world.nodes[0]
			n.Kill()
			s.sleep(500 * time.Millisecond)
			return n.Restart, s.anyClient().kill()
		},
	},
}

// settledLoad takes estimates, of which half comes back on average.
var settledLoad = load{Goroutines: 2, Streams: []stream{
	{Prefix: "hot", Keys: 1, PerSecond: 200, Rate: 4000, Burst: 16_000, Estimate: 4},
	{Prefix: "tight", Keys: 2, PerSecond: 200, Rate: 200, Burst: 800, Estimate: 4},
	{Prefix: "rare", Keys: 20, PerSecond: 60, Rate: 80, Burst: 800, Estimate: 4},
}}

// settledFaults are those of the other lists under settledLoad.
func settledFaults() (out []*fault) {
	for _, f := range slices.Concat(serverFaults, memoryFaults, networkFaults, clientFaults) {
		switch f.name {
		case "none", "SIGKILL, restart with data", "FLUSHALL", "replies lost after execution", "client SIGKILLed":
			g := *f
			g.name, g.load, g.alone = "estimates are settled, "+f.name, &settledLoad, true
			g.allowed.full = f.name == "SIGKILL, restart with data" // the outage is longer than a full bucket is kept
			out = append(out, &g)
		}
	}
	return out
}

// pauseFaults are faults of a fleet that has just heard of a pause: who knows it tells the others again.
var pauseFaults = []*fault{
	{name: "a key is paused", strict: true, alone: true, begin: pausedKey(nil)},
	{name: "a key is paused, FLUSHALL", alone: true, proof: resynced, allowed: forgets, begin: pausedKey(everyNode("FLUSHALL"))},
	{
		name: "a key is paused, SIGKILL, restart with data", alone: true, hold: 1200 * time.Millisecond, proof: failedSyncs,
		begin: pausedKey(onFirst(kill, restart)),
	},
}

// failovers are faults of a master that has a replica. The master is the first node. It comes back with its data.
var failovers = []*fault{
	{
		name: "master SIGKILLed, replica promoted", strict: true, on: replicated, proof: failedSyncs, allowed: forgets,
		begin: failover(onFirst(kill, restart)),
	},
	{
		// When the master continues, it executes the commands that were sent to it before it learns that it is no
		// longer the master.
		name: "master SIGSTOPped, replica promoted, old master back", on: replicated, proof: failedSyncs, allowed: forgets,
		begin: failover(stopped),
	},
	{
		name: "failover with lost acknowledged writes", on: replicated, proof: lostWrites, allowed: forgets,
		begin: failover(cutOff),
	},
}

var (
	replicated = []string{topologySentinel, topologyCluster}
	onCluster  = []string{topologyCluster}
)

// clusterFaults are faults of cluster slots.
var clusterFaults = []*fault{
	{
		name: "resharding with keys (MOVED, ASK)", on: onCluster,
		begin: shows("errorstats", "errorstat_MOVED", shows("errorstats", "errorstat_ASK", resharded)),
	},
	{
		name: "CLUSTERDOWN of one slot range", on: onCluster,
		begin: shows("errorstats", "errorstat_CLUSTERDOWN", slotsGone),
	},
}

// splitLoad has a key in three parts, which the masters have, beside whole keys.
var splitLoad = load{Goroutines: 2, Streams: []stream{
	{Prefix: "split", Keys: 1, PerSecond: 400, Rate: 600, Burst: 1200, Split: 3},
	{Prefix: "rare", Keys: 20, PerSecond: 60, Rate: 80, Burst: 800},
}}

// splitFaults are those of the other lists under splitLoad. A part may be lost, and the others keep what they know.
func splitFaults() (out []*fault) {
	for _, f := range slices.Concat(serverFaults, memoryFaults, networkFaults, clientFaults, failovers) {
		switch f.name {
		case "none", "FLUSHALL", "replies lost after execution", "client SIGKILLed", "client paused 4 s", "clock +1 h", failovers[0].name, failovers[1].name:
			g := *f
			g.name, g.load, g.on, g.alone = "a key is split, "+f.name, &splitLoad, onCluster, true
			switch f.name {
			case "FLUSHALL":
				g.name, g.begin = g.name+" on one master", firstFlushed
			case "clock +1 h":
				g.on = nil // only a single server has a clock that can be moved
			}
			out = append(out, &g)
		}
	}
	return out
}

// firstFlushed empties the first node.
func firstFlushed(ctx context.Context, s *scene) (func() error, error) {
	return nil, s.world.nodes[0].do(ctx, "FLUSHALL")
}

// toxic returns a fault that adds a toxic to every proxy until it is ended.
func toxic(kind, direction string, with attributes) act {
	return func(_ context.Context, s *scene) (func() error, error) {
		var cures []func() error
		err := s.world.each(func(n *node) error {
			cure, err := n.proxy.poison(kind, direction, with)
			if err == nil {
				cures = append(cures, cure)
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(err, backwards(cures)())
		}
		return backwards(cures), nil
	}
}

// flicker returns a fault that adds a toxic to every proxy for a moment, repeatedly. Messages in flight at that moment
// are lost, and later ones arrive.
func flicker(kind, direction string, with attributes) act {
	begin := toxic(kind, direction, with)
	return again(60*time.Millisecond, func(ctx context.Context, s *scene) (func() error, error) {
		end, err := begin(ctx, s)
		if err != nil {
			return nil, err
		}
		s.sleep(30 * time.Millisecond)
		return nil, end()
	})
}

// anyClient draws a client.
func (s *scene) anyClient() *client { return s.clients[s.draw(len(s.clients))] }

// pausedClient freezes a client for longer than its heartbeat lives. The other clients then count one process fewer,
// and the frozen one may spend the units that it held once.
func pausedClient(_ context.Context, s *scene) (func() error, error) {
	c := s.anyClient()
	r, err := c.tell(orderStats)
	if err != nil {
		return nil, err
	}
	s.allow(allowance{units: r.Stats.Held})
	return c.resume, c.pause()
}

// pausedKey pauses the first key at a client, and begins another fault when the fleet knows.
func pausedKey(then act) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		at := s.clock.now()
		if _, err := s.anyClient().tell(orderPause); err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.paused = at
		s.mu.Unlock()
		if then == nil {
			return nil, nil
		}
		s.sleep(pausedWithin.idle)
		return then(ctx, s)
	}
}

// failover makes the master fail, and waits until the replica has taken over.
func failover(begin act) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		s.world.nodes[0].fallen = true
		end, err := begin(ctx, s)
		if err != nil {
			return nil, err
		}
		return end, s.world.failedOver(ctx)
	}
}

// cutOff cuts the link from the master to its replica, lets the master continue for a while, and then kills it. The
// writes that it acknowledged meanwhile are lost.
func cutOff(ctx context.Context, s *scene) (func() error, error) {
	n, replica := s.world.nodes[0], s.world.nodes[1]
	if s.world.topology == topologyCluster {
		replica = s.world.nodes[masters]
	}
	// The master does not expect this password, so it refuses the replica.
	back, err := replica.set(ctx, "masterauth", "wrong")
	if err != nil {
		return nil, err
	}
	if err := n.do(ctx, "CLIENT", "KILL", "TYPE", "replica"); err != nil {
		return nil, err
	}
	s.sleep(300 * time.Millisecond)
	n.Kill()
	return backwards([]func() error{n.Restart, back}), nil
}

// resharded moves the slots of all tags, with their keys, to another master while they are in use.
func resharded(ctx context.Context, s *scene) (func() error, error) {
	moved, asked := 0, s.counted(ctx, "errorstats", "errorstat_ASK")
	for tag := range lua.DefaultTags {
		slot, err := s.world.nodes[0].admin.ClusterKeySlot(ctx, fmt.Sprintf("{%d}", tag)).Result()
		if err != nil {
			return nil, err
		}
		from, err := s.world.masterOf(ctx, slot)
		if err != nil {
			return nil, err
		}
		to := s.world.nodes[0]
		if to == from {
			to = s.world.nodes[1]
		}
		keys, err := s.moveSlot(ctx, slot, from, to, asked)
		if err != nil {
			return nil, err
		}
		moved += keys
	}
	if moved == 0 {
		return nil, fmt.Errorf("no key was moved")
	}
	return nil, nil
}

// moveSlot moves a slot with its keys. It is slow enough for calls that find their keys on both nodes. The slot stays
// between the nodes until a client was told to ask the other one (more often than asked), for two seconds at most: a
// process that holds leases may have nothing to say for a while.
func (s *scene) moveSlot(ctx context.Context, slot int64, from, to *node, asked int64) (moved int, err error) {
	fromID, toID := from.admin.ClusterMyID(ctx).Val(), to.admin.ClusterMyID(ctx).Val() // Redis refuses an empty one
	if err := to.do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID); err != nil {
		return 0, err
	}
	if err := from.do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID); err != nil {
		return 0, err
	}
	for {
		keys, err := from.admin.ClusterGetKeysInSlot(ctx, int(slot), 1).Result()
		if err != nil {
			return moved, err
		}
		if len(keys) == 0 {
			break
		}
		if err := from.do(ctx, "MIGRATE", "127.0.0.1", to.Port(), keys[0], 0, 1000); err != nil {
			return moved, err
		}
		moved++
		s.sleep(10 * time.Millisecond)
	}
	for range 200 {
		if s.counted(ctx, "errorstats", "errorstat_ASK") > asked {
			break
		}
		s.sleep(10 * time.Millisecond)
	}
	for _, n := range s.world.nodes[:masters] {
		if err := n.do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// slotsGone removes the slots of one master from the cluster, and later restores them with their keys.
func slotsGone(ctx context.Context, s *scene) (func() error, error) {
	owner := s.world.nodes[0]
	first, last := "0", strconv.Itoa(clusterSlots/masters-1)
	// The owner is first, or its messages to the others would undo the change. A node that does not know the slots any
	// more returns an error, and that is the wanted state.
	for range 2 {
		for i, n := range s.world.nodes {
			if err := n.do(ctx, "CLUSTER", "DELSLOTSRANGE", first, last); err != nil && i == 0 {
				if _, unserved := s.world.masterOf(ctx, 0); unserved == nil {
					return nil, err
				}
			}
		}
	}
	return func() error {
		if err := owner.do(ctx, "CLUSTER", "ADDSLOTSRANGE", first, last); err != nil {
			return err
		}
		return s.world.agreed(ctx)
	}, nil
}
