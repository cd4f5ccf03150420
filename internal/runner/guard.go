package runner

import (
	"context"
	"net"
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/respguard"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// What a server may answer. go-redis makes room for as many values as a reply
// announces, so each command is given what Redis can answer to it, and no more.
const (
	// HELLO: a map of seven, and what modules there are.
	greetingValues = 1024
	levels         = 16 // of a greeting (5) or of COMMAND (10)

	// CLUSTER SLOTS: at most a range for each slot, a range has its bounds, and
	// each of its nodes has at most an address, a port, an id, and host names.
	nodesOfRange = 7
	valuesOfNode = 9
	mapValues    = lua.MaxTags * (3 + nodesOfRange*valuesOfNode)
	mapBytes     = 64 << 20

	// What others may ask for. Redis has no more than 2³² values in a key, and
	// Lua nests 8000 deep.
	othersValues = 1 << 32
	othersBytes  = 1 << 40
	othersLevels = 10_000

	// A message of others: one that was published, or keys that changed.
	pushValues = 1 << 20
	pushBytes  = 1 << 30
)

// rules bound what a connection passes on to go-redis.
var rules = &respguard.Rules{
	Class: classOf,
	Limits: [...]respguard.Limits{
		respguard.Short: {Values: max(wire.MaxReplyValues, greetingValues), Bytes: wire.MaxReplyBytes, Depth: levels},
		respguard.Map:   {Values: mapValues, Bytes: mapBytes, Depth: levels},
		respguard.Other: {Values: othersValues, Bytes: othersBytes, Depth: othersLevels},
	},
	Push: respguard.Limits{Values: pushValues, Bytes: pushBytes, Depth: levels},
	Err:  wire.ErrReply,
}

// command is the first two words of a command, of which the guard sees 64 bytes.
type command struct{ verb, word string }

// known is the class of each command that is this library's, or that go-redis
// sends for it. A verb without a word stands for every command of that verb.
var known = func() map[command]respguard.Class {
	m := map[command]respguard.Class{
		{"hello", ""}: respguard.Short, {"auth", ""}: respguard.Short, {"select", ""}: respguard.Short,
		{"readonly", ""}: respguard.Short, {"asking", ""}: respguard.Short,
		{"client", "setname"}: respguard.Short, {"client", "setinfo"}: respguard.Short,
		{"client", "tracking"}: respguard.Short, {"client", "maint_notifications"}: respguard.Short,
		{"function", "load"}: respguard.Short,
		{"cluster", "slots"}: respguard.Map,
		{"subscribe", ""}:    respguard.Stream, {"psubscribe", ""}: respguard.Stream, {"ssubscribe", ""}: respguard.Stream,
		{"monitor", ""}: respguard.Stream, {"sync", ""}: respguard.Stream, {"psync", ""}: respguard.Stream,
	}
	for _, s := range []lua.Script{lua.Batch, lua.History, lua.Fleet, lua.SetSwitch} {
		m[command{"evalsha", s.SHA}] = respguard.Short
		m[command{"eval", s.Source[:respguard.Kept]}] = respguard.Short
	}
	for _, f := range []string{lua.Library.Batch, lua.Library.History, lua.Library.Heartbeat, lua.Library.SetSwitch} {
		m[command{"fcall", f}] = respguard.Short
	}
	return m
}()

// alone is the class of commands of one word: go-redis sends them of itself.
var alone = map[string]respguard.Class{"ping": respguard.Short, "command": respguard.Map}

// classOf is the class of a command. What is not known is somebody else's.
func classOf(verb, word []byte) respguard.Class {
	if len(word) == 0 {
		if c, ok := alone[string(verb)]; ok {
			return c
		}
	}
	if c, ok := known[command{string(verb), string(word)}]; ok {
		return c
	}
	if c, ok := known[command{string(verb), ""}]; ok {
		return c
	}
	return respguard.Other
}

// guard has all connections that a client dials from now on guarded. Others may
// use the client too: what they can be told is not touched. A client of another
// kind than go-redis's own is left alone.
func guard(rdb redis.UniversalClient) {
	switch c := rdb.(type) {
	case *redis.Client:
		guardNode(c)
	case *redis.Ring:
		if first(c) {
			c.OnNewNode(guardNode)
			_ = c.ForEachShard(context.Background(), guardShard) // guardShard does not fail
		}
	case *redis.ClusterClient:
		if first(c) {
			c.OnNewNode(guardNode)
			_ = c.ForEachShard(over(), guardShard) // fails if no node is known yet
		}
	}
}

// over is a context with which a ClusterClient asks no server: ForEachShard is
// for the nodes that it knows.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func guardShard(_ context.Context, c *redis.Client) error {
	guardNode(c)
	return nil
}

func guardNode(c *redis.Client) {
	if first(c) {
		c.AddHook(guardHook{})
	}
}

// guardedClients are weak pointers to the clients that have a guard, so that many
// limiters on one client give it one.
var guardedClients sync.Map

// first reports whether c had no guard yet, and notes that it has.
func first[T any](c *T) bool {
	key := any(weak.Make(c))
	_, had := guardedClients.LoadOrStore(key, nil)
	if !had {
		runtime.AddCleanup(c, func(key any) { guardedClients.Delete(key) }, key)
	}
	return !had
}

// guardHook guards connections as they are dialled, and nothing else.
type guardHook struct{}

// DialHook is for redis.Hook.
func (guardHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return respguard.Wrap(conn, rules), nil
	}
}

// ProcessHook is for redis.Hook.
func (guardHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook is for redis.Hook.
func (guardHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
