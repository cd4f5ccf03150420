package main

import (
	"context"
	"time"
)

var replicated = []string{topologySentinel, topologyCluster}

// failovers are faults of a master that has a replica. The master is the first
// node.
var failovers = []*fault{
	{name: "master SIGKILLed, replica promoted", strict: true, on: replicated, proof: failedSyncs, begin: masterKilled, allowed: forgets},
	{name: "master SIGSTOPped, replica promoted, old master back", on: replicated, proof: failedSyncs, begin: masterStopped, allowed: forgets},
	{name: "failover with lost acknowledged writes", on: replicated, proof: lostWrites, begin: masterCutOff, allowed: forgets},
}

// lostWrites proves that the promoted replica lacked writes of its master.
func lostWrites(e *evidence) string {
	if e.sums.forgotten == 0 {
		return "no write was lost"
	}
	return ""
}

// failedOver waits until another node serves in place of the first one.
func (s *scene) failedOver(ctx context.Context) error {
	if s.world.topology == topologySentinel {
		return s.world.promoted(ctx, s.world.nodes[0])
	}
	return until(ctx, patience, "the replica takes over", func() bool {
		text, err := s.world.nodes[masters].admin.Info(ctx, "replication").Result()
		return err == nil && text != "" && s.world.nodes[masters].info(ctx, "replication", "role") == "master"
	})
}

// masterKilled kills the master. After the replica has taken over, the old
// master comes back with its data.
func masterKilled(ctx context.Context, s *scene) (func() error, error) {
	n := s.world.nodes[0]
	n.fallen = true
	n.Kill()
	return n.Restart, s.failedOver(ctx)
}

// masterStopped freezes the master during a failover. When it continues, it
// executes the commands that were sent to it before it learns that it is no
// longer the master.
func masterStopped(ctx context.Context, s *scene) (func() error, error) {
	n := s.world.nodes[0]
	n.fallen = true
	if err := n.Pause(); err != nil {
		return nil, err
	}
	return n.Resume, s.failedOver(ctx)
}

// masterCutOff cuts the link from the master to its replica, lets the master
// continue for a while, and then kills it. The writes that it acknowledged
// meanwhile are lost.
func masterCutOff(ctx context.Context, s *scene) (func() error, error) {
	n, replica := s.world.nodes[0], s.world.nodes[1]
	if s.world.topology == topologyCluster {
		replica = s.world.nodes[masters]
	}
	// The master does not expect this password, so it refuses the replica.
	if err := replica.do(ctx, "CONFIG", "SET", "masterauth", "wrong"); err != nil {
		return nil, err
	}
	if err := n.do(ctx, "CLIENT", "KILL", "TYPE", "replica"); err != nil {
		return nil, err
	}
	s.sleep(300 * time.Millisecond)
	n.fallen = true
	n.Kill()
	return func() error {
		if err := replica.do(ctx, "CONFIG", "SET", "masterauth", ""); err != nil {
			return err
		}
		return n.Restart()
	}, s.failedOver(ctx)
}
