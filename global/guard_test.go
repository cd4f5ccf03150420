package global_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestOthersOnAClientAreNotTouched checks that other commands on a limiter's client get
// any reply of Redis: the guard applies only to the limiter's commands.
func TestOthersOnAClientAreNotTouched(t *testing.T) {
	server := redistest.New(t)
	for protocol := 2; protocol <= 3; protocol++ {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			rdb := server.Client(t, func(o *redis.Options) { o.Protocol, o.PoolSize, o.ReadTimeout = protocol, 2, time.Minute })
			l := newLimiter(t, rdb, ten, global.Config{Name: fmt.Sprint("shared", protocol), Timeout: time.Minute})
			ctx, long := t.Context(), strings.Repeat("x", 9<<20)
			check := func(what string, ok bool, err error) {
				t.Helper()
				if !ok || err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if _, err := l.Peek(ctx, "k"); err != nil { // on the same connections
					t.Errorf("after %s: %v", what, err)
				}
			}
			err := rdb.Set(ctx, "long", long, 0).Err()
			check("SET", true, err)
			got, err := rdb.Get(ctx, "long").Result()
			check("GET", got == long, err)
			all := make([]any, 100_000)
			for i := range all {
				all[i] = i
			}
			err = rdb.Del(ctx, "list").Err()
			check("DEL", true, err)
			err = rdb.RPush(ctx, "list", all...).Err()
			check("RPUSH", true, err)
			list, err := rdb.LRange(ctx, "list", 0, -1).Result()
			check("LRANGE", len(list) == len(all), err)
			deep, err := rdb.Eval(ctx, "local v = 1 for i = 1, 1000 do v = {v} end return v", nil).Result()
			check("nested", fmt.Sprint(deep) == strings.Repeat("[", 1000)+"1"+strings.Repeat("]", 1000), err)
			_, err = rdb.Eval(ctx, "return {err = string.rep('x', 2000000)}", nil).Result()
			check("a long error", err != nil && len(err.Error()) >= 2_000_000, nil)
			commands, err := rdb.Command(ctx).Result()
			check("COMMAND", len(commands) > 100, err)
			info, err := rdb.Info(ctx, "everything").Result()
			check("INFO", len(info) > 1000, err)
			cmds, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.Ping(ctx)
				p.ClientSetName(ctx, "me")
				p.Get(ctx, "long")
				p.Ping(ctx)
				p.LRange(ctx, "list", 0, -1)
				return nil
			})
			check("a pipeline", len(cmds) == 5, err)
			cmds, err = rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Get(ctx, "long")
				p.Ping(ctx)
				return nil
			})
			check("a transaction", len(cmds) == 2, err)
			sub := rdb.Subscribe(ctx, "news")
			defer sub.Close()
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				err := rdb.Publish(ctx, "news", long).Err()
				check("PUBLISH", true, err)
				message, err := sub.ReceiveMessage(ctx)
				check("a message", err == nil && message.Payload == long, err)
			}
		})
	}
}

// TestAClusterThatWasInUse checks that a ClusterClient that was in use before works with
// a limiter.
func TestAClusterThatWasInUse(t *testing.T) {
	cluster := redistest.NewCluster(t, 2)
	rdb := cluster.Client(t)
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	checkLimiter(t, rdb, false)
}

// TestAGuardAsksNobody checks that a new runner contacts no server, also if the client
// knows nodes.
func TestAGuardAsksNobody(t *testing.T) {
	var asked bool
	slots := func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
	}
	watch := func(o *redis.Options) *redis.Client {
		o.OnConnect = func(context.Context, *redis.Conn) error { asked = true; return nil }
		c := redis.NewClient(o)
		c.AddHook(noDial{t})
		return c
	}
	for _, rdb := range []redis.UniversalClient{
		redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots, NewClient: watch}),
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, NewClient: watch}),
		redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, NewClient: watch, HeartbeatFrequency: time.Hour}),
		watch(&redis.Options{Addr: "127.0.0.1:1"}),
	} {
		r, err := runner.New(rdb, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		_ = rdb.Close()
	}
	if asked {
		t.Error("a server was contacted")
	}
}

// noDial is a hook that fails the test on a dial.
type noDial struct{ t *testing.T }

func (h noDial) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.t.Errorf("dialled %s", addr)
		return next(ctx, network, addr)
	}
}
func (noDial) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (noDial) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
