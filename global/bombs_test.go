package global_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// bombCost is the largest number of bytes that a call may allocate, with any reply. It
// includes the allocations of the test's server and the buffers of a new connection. The
// smallest bomb asks for 512 MiB, or for an unbounded stack.
const bombCost = 32 << 20

// oddClients makes clients of each kind for a server that is not Redis.
var oddClients = map[string]func(t *testing.T, addr string) redis.UniversalClient{
	"client": func(t *testing.T, addr string) redis.UniversalClient {
		return redistest.Client(t, addr, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Second, -1 })
	},
	"ring": func(t *testing.T, addr string) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": addr}, ReadTimeout: time.Second, MaxRetries: -1, HeartbeatFrequency: time.Hour})
	},
	"cluster": func(t *testing.T, addr string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
			}, ReadTimeout: time.Second, MaxRedirects: -1,
		})
	},
	"discovery": func(t *testing.T, addr string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ReadTimeout: 200 * time.Millisecond, MaxRedirects: -1})
	},
	"failover": func(t *testing.T, addr string) redis.UniversalClient {
		host, port, _ := net.SplitHostPort(addr)
		master := "*2\r\n$" + strconv.Itoa(len(host)) + "\r\n" + host + "\r\n$" + strconv.Itoa(len(port)) + "\r\n" + port + "\r\n"
		sentinel := redistest.OddTo(t, func(cmd []string) string {
			if cmd[1] == "get-master-addr-by-name" {
				return master
			}
			return "*0\r\n"
		}, "SENTINEL")
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{sentinel}, ReadTimeout: time.Second, MaxRetries: -1})
	},
}

// TestBombsCostNothing has a server that announces a reply longer than a script can
// give, or with unbounded nesting, to any command. It checks that the reply is refused
// before memory is allocated for it, and that the process survives.
func TestBombsCostNothing(t *testing.T) {
	for _, tc := range []struct {
		client    string
		functions bool
		at        string // the command that gets the bomb as its reply
	}{
		{"client", false, "EVALSHA"},
		{"client", false, "EVAL"},
		{"client", true, "FCALL"},
		{"client", true, "FUNCTION"},
		{"client", false, "HELLO"},
		{"client", false, "CLIENT"},
		{"ring", false, "EVALSHA"},
		{"ring", true, "FUNCTION"},
		{"ring", false, "HELLO"},
		{"cluster", false, "EVALSHA"},
		{"cluster", true, "FUNCTION"},
		{"discovery", false, "HELLO"},
		{"discovery", false, "CLUSTER"},
		{"failover", false, "EVALSHA"},
		{"failover", false, "HELLO"},
	} {
		t.Run(strings.Join([]string{tc.client, tc.at}, " "), func(t *testing.T) {
			var bomb atomic.Value
			addr := redistest.OddTo(t, func(cmd []string) string {
				switch cmd[0] {
				case tc.at:
					return bomb.Load().(string)
				case "EVALSHA":
					return "-NOSCRIPT no\r\n"
				case "FCALL":
					return "-ERR Function not found\r\n"
				}
				return "-ERR unknown\r\n"
			}, "HELLO", "CLIENT", "CLUSTER", "EVALSHA", "EVAL", "FCALL", "FUNCTION")
			rdb := oddClients[tc.client](t, addr)
			t.Cleanup(func() { _ = rdb.Close() })
			l := newLimiter(t, rdb, ten, global.Config{Timeout: 10 * time.Second, Functions: tc.functions})
			scripts := strings.HasPrefix(tc.at, "E") || strings.HasPrefix(tc.at, "F") // for other commands, go-redis may return another error first
			for _, text := range append(redistest.Bombs, "*2000\r\n"+strings.Repeat(":1\r\n", 100)) {
				if tc.at == "CLUSTER" && strings.HasPrefix(text, "*2000") {
					continue // a valid reply: there may be that many slot ranges
				}
				bomb.Store(text)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				res, err := l.Allow(t.Context(), "k")
				runtime.ReadMemStats(&after)
				if cost := after.TotalAlloc - before.TotalAlloc; cost > bombCost || res.Allowed || !errors.Is(err, hybridlimit.ErrUnavailable) || scripts && !errors.Is(err, wire.ErrReply) {
					t.Errorf("%.40q: %d MiB, %+v, %v", text, cost>>20, res, err)
				}
			}
		})
	}
}
