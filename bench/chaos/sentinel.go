package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const sentinelMaster = "chaos"

// startSentinels starts a master, its replica and three Sentinels that declare
// a master down after half a second.
func (w *world) startSentinels() error {
	ctx := context.Background()
	for range 2 {
		if err := w.add(redistest.WithArgs("--repl-diskless-sync-delay", "0")); err != nil {
			return err
		}
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

// promoted waits until the Sentinels name another master than old.
func (w *world) promoted(ctx context.Context, old *node) error {
	rdb := redis.NewSentinelClient(&redis.Options{Addr: w.sentinels[0].Addr()})
	defer rdb.Close()
	return until(ctx, patience, "Sentinels promote the replica", func() bool {
		one, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		addr, err := rdb.GetMasterAddrByName(one, sentinelMaster).Result()
		return err == nil && addr[1] != fmt.Sprint(old.Port())
	})
}
