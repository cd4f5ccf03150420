package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

var onCluster = []string{topologyCluster}

// clusterFaults are faults of cluster slots.
var clusterFaults = []*fault{
	{name: "resharding with keys (MOVED, ASK)", on: onCluster, begin: shows("errorstats", "errorstat_MOVED", shows("errorstats", "errorstat_ASK", resharded))},
	{name: "CLUSTERDOWN of one slot range", on: onCluster, begin: shows("errorstats", "errorstat_CLUSTERDOWN", slotsGone)},
}

// resharded moves the slots of all tags, with their keys, to another master
// while they are in use.
func resharded(ctx context.Context, s *scene) (func() error, error) {
	moved, asked := 0, s.counted(ctx, "errorstats", "errorstat_ASK")
	for tag := range probedTags {
		slot, err := s.world.nodes[0].admin.ClusterKeySlot(ctx, fmt.Sprintf("{%d}", tag)).Result()
		if err != nil {
			return nil, err
		}
		from, err := s.world.masterOf(ctx, int(slot))
		if err != nil {
			return nil, err
		}
		to := s.world.nodes[0]
		if to == from {
			to = s.world.nodes[1]
		}
		keys, err := s.moveSlot(ctx, int(slot), from, to, asked)
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

// moveSlot moves a slot with its keys. It is slow enough for calls that find
// their keys on both nodes. The slot stays between the nodes until a client was
// told to ask the other one (more often than asked), for two seconds at most: a
// process that holds leases may have nothing to say for a while.
func (s *scene) moveSlot(ctx context.Context, slot int, from, to *node, asked int64) (moved int, err error) {
	fromID, err := from.admin.ClusterMyID(ctx).Result()
	if err != nil {
		return 0, err
	}
	toID, err := to.admin.ClusterMyID(ctx).Result()
	if err != nil {
		return 0, err
	}
	if err := to.do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID); err != nil {
		return 0, err
	}
	if err := from.do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID); err != nil {
		return 0, err
	}
	for {
		keys, err := from.admin.ClusterGetKeysInSlot(ctx, slot, 1).Result()
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

// slotsGone removes the slots of one master from the cluster, and later
// restores them with their keys.
func slotsGone(ctx context.Context, s *scene) (func() error, error) {
	owner := s.world.nodes[0]
	first, last := "0", strconv.Itoa(clusterSlots/masters-1)
	// The owner is first, or its messages to the others would undo the change.
	// A node that does not know the slots any more returns an error, and that
	// is the wanted state.
	for range 2 {
		for i, n := range s.world.nodes {
			err := n.do(ctx, "CLUSTER", "DELSLOTSRANGE", first, last)
			if err != nil && (i == 0 && !s.unserved(ctx)) {
				return nil, err
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

// unserved reports whether no node serves the first slot.
func (s *scene) unserved(ctx context.Context) bool {
	_, err := s.world.masterOf(ctx, 0)
	return err != nil
}
