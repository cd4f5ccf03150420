package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// The topologies.
const (
	topologySingle   = "single"
	topologySentinel = "sentinel" // a master, a replica and three Sentinels
	topologyCluster  = "cluster"  // three masters with a replica each
)

// node is a redis-server that keeps an append-only file. It has a proxy in
// front, and a connection that bypasses the proxy.
type node struct {
	*redistest.Server
	proxy  *proxy
	admin  *redis.Client
	config configured
	fallen bool // was a master until it failed
	saved  int  // number of append-only directories put aside
	attic  string
}

// aofArgs make a server keep everything that it has ever written. The kernel
// has each write before the reply is sent, so a SIGKILL loses none. Files are
// not rewritten. Files that a replica replaces at a sync are kept. Payloads of
// MIGRATE stay readable.
var aofArgs = []string{
	"--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0", "--rdbcompression", "no",
	"--aof-disable-auto-gc", "yes",
	"--user", runner, "on", "nopass", "~*", "&*", "+@all",
}

// runner is the user of the runner's own connections. Faults change the password and the rights of the default user, and the
// runner may have to connect again meanwhile.
const runner = "runner"

func startNode(attic string, opts ...redistest.Option) (*node, error) {
	srv, err := redistest.Start(append([]redistest.Option{redistest.WithArgs(aofArgs...)}, opts...)...)
	if err != nil {
		return nil, err
	}
	p, err := startProxy(srv.Addr())
	if err != nil {
		srv.Close()
		return nil, err
	}
	n := &node{Server: srv, proxy: p, admin: adminClient(srv.Addr(), runner)}
	n.attic = filepath.Join(attic, strconv.Itoa(srv.Port()))
	return n, os.MkdirAll(n.attic, 0o700)
}

// adminClient returns a client with one connection, as a user without a password; "": the default user. Faults that refuse clients
// leave this connection open. The client gives up early and does not retry,
// because the runner does.
func adminClient(addr, user string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Username: user, Password: user, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: 3 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (n *node) close() {
	n.admin.Close()
	n.proxy.Stop()
	n.Close()
}

func (n *node) do(ctx context.Context, words ...any) error {
	if err := n.admin.Do(ctx, words...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("%s: %v: %w", n.Addr(), words[:min(len(words), 3)], err)
	}
	return nil
}

// forget puts the append-only files of a stopped server aside for the ledger,
// so that the server starts empty.
func (n *node) forget() error {
	n.saved++
	return os.Rename(filepath.Join(n.Dir(), "appendonlydir"), filepath.Join(n.attic, strconv.Itoa(n.saved)))
}

// world has the Redis servers of a run.
type world struct {
	topology  string
	nodes     []*node // in a cluster, masters first
	sentinels []*redistest.Server
	attic     string
}

// startWorld starts a topology. env is the additional environment of its
// servers.
func startWorld(topology, attic string, env ...string) (w *world, err error) {
	w = &world{topology: topology, attic: attic}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	switch topology {
	case topologySingle:
		return w, w.add(redistest.WithEnv(env...))
	case topologySentinel:
		return w, w.startSentinels()
	case topologyCluster:
		return w, w.startCluster()
	default:
		return w, fmt.Errorf("no such topology: %s", topology)
	}
}

func (w *world) add(opts ...redistest.Option) error {
	n, err := startNode(w.attic, opts...)
	if err == nil {
		w.nodes = append(w.nodes, n)
	}
	return err
}

func (w *world) close() {
	for _, s := range w.sentinels {
		s.Close()
	}
	for _, n := range w.nodes {
		n.close()
	}
}

// addrs returns the addresses that clients are given.
func (w *world) addrs() (out []string) {
	switch w.topology {
	case topologySentinel:
		for _, s := range w.sentinels {
			out = append(out, s.Addr())
		}
	case topologyCluster:
		for _, n := range w.nodes {
			out = append(out, n.Addr())
		}
	default:
		out = []string{w.nodes[0].Addr()}
	}
	return out
}

// dial returns, for each server's address, the address of its proxy.
func (w *world) dial() map[string]string {
	out := map[string]string{}
	for _, n := range w.nodes {
		out[n.Addr()] = n.proxy.addr()
	}
	return out
}

// until polls cond. If cond is not true in time, the error names the event that
// did not happen.
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

// well waits until the current master of every slot takes a write through its
// proxy.
func (w *world) well(ctx context.Context) error {
	rdb := (&worker{spec: spec{Topology: w.topology, Addrs: w.addrs(), Dial: w.dial()}}).client()
	defer rdb.Close()
	var last error
	err := until(ctx, patience, "every slot takes writes", func() bool {
		for tag := range probedTags {
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

// probedTags is lua.DefaultTags. There is one probe for each slot that the
// limiter uses.
const probedTags = 16

// info returns a field of INFO.
func (n *node) info(ctx context.Context, section, field string) string {
	text, _ := n.admin.Info(ctx, section).Result()
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	return ""
}
