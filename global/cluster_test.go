package global_test

import (
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
	return redistest.New(t, redistest.WithArgs("--cluster-enabled", "yes"), redistest.WithPort(clusterPort(t)))
}

// busOffset is how far the bus port is above the other. Redis 7 can be told
// another port, Redis 6 cannot.
const busOffset = 10_000

// clusterPort is a port that is free, with a bus port that is free as well.
func clusterPort(t *testing.T) int {
	t.Helper()
	free := func(port int) (int, bool) {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return 0, false
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port, true
	}
	for range 1000 {
		port, ok := free(0)
		if !ok || port+busOffset > 65535 {
			continue
		}
		if _, ok := free(port + busOffset); ok {
			return port
		}
	}
	t.Fatal("no two free ports for a cluster node")
	return 0
}

// ownAll gives a node every slot. One by one: Redis 6 knows no ranges.
func ownAll(t *testing.T, rdb *redis.Client) {
	t.Helper()
	words := []any{"CLUSTER", "ADDSLOTS"}
	for slot := range 16384 {
		words = append(words, slot)
	}
	do(t, rdb, words...)
}

func do(t *testing.T, rdb *redis.Client, words ...any) string {
	t.Helper()
	out, err := rdb.Do(t.Context(), words...).Text()
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
	ownAll(t, direct)
	clusterUp(t, direct)
	checkLimiter(t, clusterClient(t, node.Addr()))
}

// evals is how often a node has run the library.
func evals(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	ran := 0
	for _, line := range strings.Split(do(t, rdb, "INFO", "commandstats"), "\r\n") {
		if _, rest, ok := strings.Cut(line, "cmdstat_eval"); ok { // and evalsha
			_, calls, _ := strings.Cut(rest, "calls=")
			n, _, _ := strings.Cut(calls, ",")
			count, err := strconv.Atoi(n)
			if err != nil {
				t.Fatalf("INFO commandstats: %q", line)
			}
			ran += count
		}
	}
	return ran
}

// While a slot moves to another node, decisions follow it: ASK during the move
// and MOVED after it. Neither costs units, or the answer.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	a, b := clusterNode(t), clusterNode(t)
	ca, cb := a.Client(t), b.Client(t)
	ownAll(t, ca)
	do(t, cb, "CLUSTER", "MEET", "127.0.0.1", a.Port(), a.Port()+busOffset)
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
	if n := evals(t, cb); n != 2 { // EVALSHA, EVAL
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
	errs := do(t, ca, "INFO", "errorstats")
	if !strings.Contains(errs, "errorstat_ASK:") || !strings.Contains(errs, "errorstat_MOVED:") {
		t.Errorf("the old node has not sent both ASK and MOVED: %q", errs)
	}
}

var _ redis.UniversalClient = (*redis.ClusterClient)(nil)
