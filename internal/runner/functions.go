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

// WithFunctions says whether a Runner calls the functions of lua.Library
// (FCALL) instead of the scripts (EVALSHA).
func WithFunctions(on bool) Option { return func(r *Runner) { r.functions = on } }

// fcall runs a function, and loads the library where Redis does not know it: a
// restart, a failover, a new node or FUNCTION FLUSH is not a failure. What was
// not found was not executed, so to call again counts nothing twice.
//
// A call that still finds nothing runs as the script. So it is where a slot is
// on its way to a node that owns none yet: go-redis follows an ASK, and does not
// say where to. So it may be while somebody flushes all the time.
func (r *Runner) fcall(ctx context.Context, function string, script lua.Script, keys, argv []string) (any, error) {
	owner := "" // of no key: any node may be asked
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

// withoutFunctions explains the answer of a Redis that has no functions.
func withoutFunctions(err error) error {
	if redis.HasErrorPrefix(err, "unknown command") {
		return fmt.Errorf("hybridlimit: Config.Functions needs Redis 7 or newer: %w", err)
	}
	return err
}

// load loads the library on the node that owns a key, or if the key is empty on
// all; then one that succeeds is enough, since others may be down. Only within a call that has begun.
func (r *Runner) load(ctx context.Context, owner string) error {
	return r.within(ctx, func() error { return r.onNodes(ctx, owner, loadLibrary) })
}

// loadLibrary loads without REPLACE. The name says what the library holds, so
// one that exists is it; and of a thousand calls that find it missing, the
// first makes Redis compile and replicate it, not each.
func loadLibrary(ctx context.Context, send process) error {
	cmd := onceCmd{redis.NewCmd(ctx, "function", "load", lua.Library.Source)}
	err := send(ctx, cmd)
	if err == nil || redis.HasErrorPrefix(err, "Library '"+lua.Library.Name+"' already exists") {
		return nil
	}
	return fmt.Errorf("hybridlimit: FUNCTION LOAD, which Config.Functions needs: %w", err)
}

// process sends a command.
type process func(context.Context, redis.Cmder) error

// onNodes runs f on the node that owns a key, or if the key is empty on every
// master or shard, and fails if none succeeds. With a client that is none of go-redis's it is wherever that sends it.
func (r *Runner) onNodes(ctx context.Context, owner string, f func(context.Context, process) error) error {
	caught := func(ctx context.Context, c *redis.Client) error { // in a goroutine of go-redis's
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
