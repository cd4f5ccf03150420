package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// clusterSlots is the number of slots of a Redis Cluster.
	clusterSlots = 16384
	// BusOffset is the difference between a node's bus port and its port. Redis 7 accepts another bus port, Redis 6
	// does not.
	BusOffset = 10_000
	// clusterPatience is generous: a node takes two seconds until it reports the cluster as up.
	clusterPatience = 30 * time.Second
)

// Cluster is a Redis Cluster of masters without replicas. Together they own every slot. If a master is killed, no
// server has its slots, and the others continue to serve theirs (cluster-require-full-coverage is off).
type Cluster struct {
	Nodes []*Server
}

// NewClusterNode starts a server in cluster mode. It knows no other node and owns no slots. It skips or fails a test as
// [New] does.
func NewClusterNode(tb TB, args ...string) *Server {
	tb.Helper()
	args = append([]string{"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"}, args...)
	return New(tb, WithArgs(args...), WithBus())
}

// NewCluster starts a cluster of the given number of masters. It waits until each serves its part of the slots and
// knows the masters of the rest.
func NewCluster(tb TB, masters int, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for range masters {
		c.Nodes = append(c.Nodes, NewClusterNode(tb, args...))
	}
	for i, node := range c.Nodes {
		rdb := node.Client(tb)
		// The epochs are distinct from the start. Otherwise nodes that meet would first have to agree on them.
		Do(tb, rdb, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		AddSlots(tb, rdb, i*clusterSlots/masters, (i+1)*clusterSlots/masters)
		for _, other := range c.Nodes[:i] {
			Do(tb, rdb, "CLUSTER", "MEET", "127.0.0.1", other.Port(), other.Port()+BusOffset)
		}
	}
	for _, node := range c.Nodes {
		AwaitCluster(tb, node.Client(tb), masters)
	}
	return c
}

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string {
	out := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		out[i] = node.Addr()
	}
	return out
}

// Client returns a client of the cluster, which is closed when the test ends; see [Client].
func (c *Cluster) Client(tb TB, opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	tb.Helper()
	o := &redis.ClusterOptions{
		Addrs: c.Addrs(), MaintNotificationsConfig: noMaintNotifications(),
		DialTimeout: patientTimeout, ReadTimeout: patientTimeout, WriteTimeout: patientTimeout,
	}
	for _, opt := range opts {
		opt(o)
	}
	rdb := redis.NewClusterClient(o)
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// NewRing starts the given number of independent servers, and returns them with a client that spreads keys over them.
func NewRing(tb TB, shards int, args ...string) (*redis.Ring, []*Server) {
	tb.Helper()
	o := &redis.RingOptions{
		Addrs:       map[string]string{},
		DialTimeout: patientTimeout, ReadTimeout: patientTimeout, WriteTimeout: patientTimeout,
	}
	var servers []*Server
	for i := range shards {
		s := New(tb, WithArgs(args...))
		servers = append(servers, s)
		o.Addrs[fmt.Sprint("shard", i)] = s.Addr()
	}
	ring := redis.NewRing(o)
	tb.Cleanup(func() { ring.Close() })
	return ring, servers
}

// Do sends a command to a node and returns its answer as text.
func Do(tb TB, rdb *redis.Client, words ...any) string {
	tb.Helper()
	out, err := rdb.Do(context.Background(), words...).Text()
	if err != nil {
		tb.Fatalf("%v: %v", words[:min(len(words), 4)], err)
	}
	return out
}

// AddSlots gives a node the slots from first to end, without end. It lists them one by one, because Redis 6 has no
// ranges.
func AddSlots(tb TB, rdb *redis.Client, first, end int) {
	tb.Helper()
	words := []any{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot < end; slot++ {
		words = append(words, slot)
	}
	Do(tb, rdb, words...)
}

// AwaitCluster waits until a node knows the given number of masters and every slot is served.
func AwaitCluster(tb TB, rdb *redis.Client, masters int) {
	tb.Helper()
	want := []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_size:" + strconv.Itoa(masters) + "\r"}
	Eventually(tb, clusterPatience, "the cluster is up", func() bool {
		info := Do(tb, rdb, "CLUSTER", "INFO")
		return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(info, w) })
	})
}

// Calls returns the number of runs of each command by INFO commandstats, under "cmd", and the number of each error
// reply by INFO errorstats, under "!ERROR".
func Calls(tb TB, rdb *redis.Client) map[string]int {
	tb.Helper()
	out := map[string]int{}
	for section, field := range map[string]string{"commandstats": "calls=", "errorstats": "count="} {
		for line := range strings.Lines(Do(tb, rdb, "INFO", section)) {
			name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
			_, rest, ok2 := strings.Cut(rest, field)
			count, _, _ := strings.Cut(rest, ",")
			n, err := strconv.Atoi(count)
			if !ok || !ok2 || err != nil {
				continue
			}
			if cmd, ok := strings.CutPrefix(name, "cmdstat_"); ok {
				out[cmd] = n
			} else if e, ok := strings.CutPrefix(name, "errorstat_"); ok {
				out["!"+e] = n
			}
		}
	}
	return out
}
