package runner

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/respguard"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

func clientsWithGuard() (n int) {
	guardedClients.Range(func(any, any) bool { n++; return true })
	return n
}

// A thousand limiters on one client give it one guard. A client that is garbage collected
// leaves no entry behind.
func TestAClientHasOneGuard(t *testing.T) {
	before := clientsWithGuard()
	func() {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer c.Close()
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
		defer ring.Close()
		for range 1000 {
			guard(c)
			guard(ring)
		}
		if n := clientsWithGuard() - before; n != 3 { // the client, the ring, and its shard
			t.Errorf("%d clients with a guard, want 3", n)
		}
		ring.SetAddrs(map[string]string{"one": "127.0.0.1:1", "two": "127.0.0.1:2"})
		_ = ring.ForEachShard(context.Background(), func(_ context.Context, c *redis.Client) error {
			if first(c) {
				t.Errorf("%v has no guard", c)
			}
			return nil
		})
	}()
	for range 1000 {
		if runtime.GC(); clientsWithGuard() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d clients with a guard, want the %d from before", clientsWithGuard(), before)
}

// A ClusterClient that was in use already has nodes. They get a guard as well.
func TestNodesThatAreKnownHaveAGuard(t *testing.T) {
	c := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(ctx context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, ctx.Err()
	}})
	defer c.Close()
	node, err := c.MasterForKey(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if guard(c); first(node) {
		t.Error("the node has no guard")
	}
}

// BenchmarkAsk measures a decision of Redis, with the guard and without.
func BenchmarkAsk(b *testing.B) {
	server := redistest.New(b)
	for _, name := range []string{"plain", "guarded"} {
		b.Run(name, func(b *testing.B) {
			rdb := server.Client(b)
			if name == "plain" {
				first(rdb) // marks the client, so that it gets no guard
			}
			r, err := New(rdb, time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			op := wire.Op{Key: "{1}k", Limit: hybridlimit.PerSecond(1_000_000_000), Op: algo.Op{Asks: []int64{1}}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Batch(b.Context(), wire.Envelope{}, []wire.Op{op}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestClassOfACommand(t *testing.T) {
	for _, tc := range []struct {
		words []string
		want  respguard.Class
	}{
		{[]string{"evalsha", lua.Batch.SHA}, respguard.Short},
		{[]string{"evalsha", lua.Fleet.SHA}, respguard.Short},
		{[]string{"evalsha", lua.Settings.SHA}, respguard.Short},
		{[]string{"eval", lua.SetSwitch.Source}, respguard.Short},
		{[]string{"evalsha", lua.SetLimit.SHA}, respguard.Short},
		{[]string{"fcall", lua.Library.Settings}, respguard.Short},
		{[]string{"eval", lua.History.Source}, respguard.Short},
		{[]string{"fcall", lua.Library.Heartbeat}, respguard.Short},
		{[]string{"function", "load"}, respguard.Short},
		{[]string{"hello", "3"}, respguard.Short},
		{[]string{"client", "setinfo"}, respguard.Short},
		{[]string{"ping", ""}, respguard.Short},
		{[]string{"cluster", "slots"}, respguard.Map},
		{[]string{"command", ""}, respguard.Map},
		{[]string{"subscribe", "news"}, respguard.Stream},
		{[]string{"monitor", ""}, respguard.Stream},
		{[]string{"evalsha", lua.Batch.SHA[1:] + "0"}, respguard.Other},
		{[]string{"eval", "return 1"}, respguard.Other},
		{[]string{"ping", "x"}, respguard.Other},
		{[]string{"command", "docs"}, respguard.Other},
		{[]string{"client", "list"}, respguard.Other},
		{[]string{"function", "list"}, respguard.Other},
		{[]string{"get", "hello"}, respguard.Other},
	} {
		word := tc.words[1][:min(len(tc.words[1]), respguard.Kept)]
		if got := classOf([]byte(tc.words[0]), []byte(word)); got != tc.want {
			t.Errorf("%.60q: %d, want %d", tc.words, got, tc.want)
		}
	}
}
