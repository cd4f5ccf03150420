package runner

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/lua"
)

// Option changes how a Runner works.
type Option func(*Runner)

// WithFunctions makes a Runner call the functions of lua.Library (FCALL) if on is
// true, and the scripts (EVALSHA) otherwise.
func WithFunctions(on bool) Option { return func(r *Runner) { r.functions = on } }

// fcall runs a function. It loads the library if Redis does not know it: a
// restart, a failover, a new node or FUNCTION FLUSH is not a failure. A function
// that was not found was not executed, so a second call counts nothing twice.
//
// If the function is still not found, the script runs instead. That happens while
// a slot moves to a node that owns no slot yet: go-redis follows an ASK
// redirection, and does not report the node. It can also happen during repeated
// FUNCTION FLUSH.
func (r *Runner) fcall(ctx context.Context, function string, script lua.Script, keys []string, argv []any) (any, error) {
	owner := "" // without a key, any node will do
	if len(keys) > 0 {
		owner = keys[0]
	}
	for _, lacking := range []string{owner, ""} {
		raw, err := r.once(ctx, "fcall", function, keys, argv)
		if !redis.HasErrorPrefix(err, "Function not found") {
			return raw, withoutFunctions(err)
		}
		if err := r.load(ctx, lacking); err != nil {
			return nil, err
		}
	}
	raw, err := r.once(ctx, "fcall", function, keys, argv)
	if redis.HasErrorPrefix(err, "Function not found") {
		return r.once(ctx, "eval", script.Source, keys, argv)
	}
	return raw, err
}

// withoutFunctions explains the error of a Redis without functions.
func withoutFunctions(err error) error {
	if redis.HasErrorPrefix(err, "unknown command") {
		return fmt.Errorf("hybridlimit: Config.Functions needs Redis 7 or newer: %w", err)
	}
	return err
}

// load loads the library on the node that owns the key owner. If owner is empty, it
// loads on all nodes; one success is enough, since other nodes may be down. Call it
// only between Begin and Done.
func (r *Runner) load(ctx context.Context, owner string) error {
	return r.within(ctx, func() error { return r.onNodes(ctx, owner, loadLibrary) })
}

// loadLibrary loads without REPLACE. The name contains a hash of the library, so a
// library of that name has the same content. When a thousand calls find it
// missing, Redis compiles and replicates it once and not a thousand times.
func loadLibrary(ctx context.Context, send process) error {
	cmd := onceCmd{redis.NewCmd(ctx, "function", "load", lua.Library.Source)}
	err := send(ctx, cmd)
	if err == nil || redis.HasErrorPrefix(err, "Library '"+lua.Library.Name+"' already exists") {
		return nil
	}
	return fmt.Errorf("hybridlimit: FUNCTION LOAD failed, and Config.Functions needs it: %w", err)
}

// process sends a command.
type process func(context.Context, redis.Cmder) error

// onNodes runs f on the node that owns the key owner. If owner is empty, it runs f
// on every master or shard, and fails if none succeeds. For any other client, f
// runs once, with the client's own choice of a node.
func (r *Runner) onNodes(ctx context.Context, owner string, f func(context.Context, process) error) error {
	caught := func(ctx context.Context, c *redis.Client) error { // may run in a goroutine of go-redis
		return r.panics.catch(func() error { return f(ctx, c.Process) })
	}
	var of func(context.Context, string) (*redis.Client, error)
	var each func(context.Context, func(context.Context, *redis.Client) error) error
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		of, each = c.MasterForKey, c.ForEachMaster
	case *redis.Ring:
		of = func(_ context.Context, key string) (*redis.Client, error) { return c.GetShardClientForKey(key) }
		each = c.ForEachShard
	default:
		return f(ctx, r.process)
	}
	if owner == "" {
		var done atomic.Bool
		err := each(ctx, func(ctx context.Context, c *redis.Client) error {
			err := caught(ctx, c)
			if err == nil {
				done.Store(true)
			}
			return err
		})
		if done.Load() {
			return nil
		}
		return err
	}
	c, err := of(ctx, owner)
	if err != nil {
		return err
	}
	return caught(ctx, c)
}
