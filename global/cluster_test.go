package global_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// clusterNode starts a server in cluster mode, which owns no slots.
func clusterNode(t *testing.T) *redistest.Server {
	t.Helper()
	// The default bus port is 10000 above the other, which there may not be.
	bus, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := bus.Addr().(*net.TCPAddr).Port
	_ = bus.Close()
	return redistest.New(t, redistest.WithArgs(
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(port), "--cluster-node-timeout", "2000"))
}

func do(t *testing.T, rdb *redis.Client, words ...any) string {
	t.Helper()
	out, err := rdb.Do(context.Background(), words...).Text()
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return out
}

func clusterUp(t *testing.T, rdb *redis.Client) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "the cluster is up", func() bool {
		return strings.Contains(do(t, rdb, "CLUSTER", "INFO"), "cluster_state:ok")
	})
}

func clusterClient(t *testing.T, addrs ...string) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestCluster(t *testing.T) {
	t.Parallel() // a node takes two seconds to accept that it is up
	node := clusterNode(t)
	direct := node.Client(t)
	do(t, direct, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	clusterUp(t, direct)
	checkLimiter(t, clusterClient(t, node.Addr()))
}

// evals is how often a node has run the library, refused calls included.
func evals(t *testing.T, rdb *redis.Client) (ran, refused int) {
	t.Helper()
	for _, line := range strings.Split(do(t, rdb, "INFO", "commandstats"), "\r\n") {
		if !strings.HasPrefix(line, "cmdstat_eval") {
			continue
		}
		for _, field := range strings.Split(line[strings.Index(line, ":")+1:], ",") {
			name, value, _ := strings.Cut(field, "=")
			n, _ := strconv.Atoi(value)
			switch name {
			case "calls":
				ran += n
			case "rejected_calls", "failed_calls":
				refused += n
			}
		}
	}
	return ran, refused
}

// While a slot moves to another node, decisions follow it: ASK during the move
// and MOVED after it. Neither costs units, or the answer.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	a, b := clusterNode(t), clusterNode(t)
	ca, cb := a.Client(t), b.Client(t)
	do(t, ca, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	do(t, cb, "CLUSTER", "MEET", "127.0.0.1", a.Port(), busPort(t, ca))
	clusterUp(t, ca)
	clusterUp(t, cb)
	ida, idb := do(t, ca, "CLUSTER", "MYID"), do(t, cb, "CLUSTER", "MYID")
	redistest.Eventually(t, 20*time.Second, "the nodes know each other", func() bool {
		return strings.Contains(do(t, ca, "CLUSTER", "NODES"), idb) && strings.Contains(do(t, cb, "CLUSTER", "NODES"), ida+" 127.0.0.1:"+strconv.Itoa(a.Port()))
	})

	l := newLimiter(t, clusterClient(t, a.Addr()), hourly, global.Config{Tags: 1, Timeout: 10 * time.Second})
	if res := allow(t, l, "stays", 10); res.Remaining != 90 {
		t.Fatalf("%+v", res)
	}

	slot, err := ca.ClusterKeySlot(t.Context(), "{0}").Result()
	if err != nil {
		t.Fatal(err)
	}
	do(t, cb, "CLUSTER", "SETSLOT", slot, "IMPORTING", ida)
	do(t, ca, "CLUSTER", "SETSLOT", slot, "MIGRATING", idb)
	if res := allow(t, l, "stays", 10); res.Remaining != 80 { // still at a
		t.Errorf("of the old node: %+v", res)
	}
	if res := allow(t, l, "new", 10); res.Remaining != 90 { // ASK
		t.Errorf("asked of the new node: %+v", res)
	}
	if n, _ := evals(t, cb); n != 2 { // EVALSHA, EVAL
		t.Errorf("the new node ran %d calls", n)
	}

	stays := lua.Names{Prefix: "hl", Tags: 1}.State(0, "api", "stays")
	do(t, ca, "MIGRATE", "127.0.0.1", b.Port(), stays, 0, 5000)
	do(t, cb, "CLUSTER", "SETSLOT", slot, "NODE", idb)
	do(t, ca, "CLUSTER", "SETSLOT", slot, "NODE", idb)
	for i := range int64(3) { // MOVED, the first time at least
		for key, was := range map[string]int64{"stays": 80, "new": 90} {
			if res := allow(t, l, key, 10); res.Remaining != was-10*(i+1) {
				t.Errorf("%s after the move: %+v", key, res)
			}
		}
	}
}

func busPort(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	// "<id> 127.0.0.1:<port>@<bus> myself,master ..."
	line := do(t, rdb, "CLUSTER", "NODES")
	var port int
	if _, err := fmt.Sscanf(line[strings.Index(line, "@")+1:], "%d", &port); err != nil {
		t.Fatalf("CLUSTER NODES: %q: %v", line, err)
	}
	return port
}

var _ redis.UniversalClient = (*redis.ClusterClient)(nil)
