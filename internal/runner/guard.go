package runner

import (
	"context"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/respguard"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Bounds of a server's replies. go-redis allocates memory for the number of values that a reply announces. So the reply
// to each command is bounded by the largest reply that Redis can give to it.
const (
	// HELLO: a map of seven entries, and the list of modules.
	greetingValues = 1024
	levels         = 16 // enough for HELLO (5) and COMMAND (10)

	// CLUSTER SLOTS: at most one range for each slot. A range has its bounds and its nodes. A node has at most an
	// address, a port, an id, and host names.
	nodesOfRange = 7
	valuesOfNode = 9
	mapValues    = lua.MaxTags * (3 + nodesOfRange*valuesOfNode)
	mapBytes     = 64 << 20

	// Commands of other users of the client. Redis has at most 2³² values in a key, and Lua nests 8000 deep.
	othersValues = 1 << 32
	othersBytes  = 1 << 40
	othersLevels = 10_000

	// Push messages for other users of the client: a published message, or an invalidation of keys.
	pushValues = 1 << 20
	pushBytes  = 1 << 30
)

// rules bounds the replies that a connection passes on to go-redis.
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

// command is the first two words of a command. The guard sees 64 bytes of them.
type command struct{ verb, word string }

// known maps the commands of this library, and those that go-redis sends for it, to their class. A verb without a word
// stands for every command of that verb.
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
	for _, s := range lua.Scripts() {
		m[command{"evalsha", s.SHA}] = respguard.Short
		m[command{"eval", s.Source[:respguard.Kept]}] = respguard.Short
	}
	for _, f := range lua.Library.Functions() {
		m[command{"fcall", f}] = respguard.Short
	}
	return m
}()

// alone maps commands of one word to their class. go-redis sends them by itself.
var alone = map[string]respguard.Class{"ping": respguard.Short, "command": respguard.Map}

// classOf returns the class of a command. An unknown command belongs to another user of the client.
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

// guard guards all connections that a client dials from now on. Replies to other users of the client stay as they are.
// A client of another type than go-redis's own gets no guard.
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
			_ = c.ForEachShard(over(), guardShard) // fails if the client knows no node yet
		}
	}
}

// over returns a cancelled context. With it, ForEachShard of a ClusterClient asks no server and visits only the nodes
// that the client already knows.
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

// guardedClients holds the clients that have a guard, so that a client gets one guard, however many limiters use it.
var guardedClients sync.Map

// first reports whether c had no guard yet, and marks c as guarded.
func first[T any](c *T) bool {
	_, had := keep(&guardedClients, c, nil)
	return !had
}

// guardHook guards each connection when it is dialled. It changes nothing else.
type guardHook struct{ pass }

// DialHook implements redis.Hook.
func (guardHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return respguard.Wrap(conn, rules), nil
	}
}
