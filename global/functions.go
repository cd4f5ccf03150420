package global

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/lua"
)

// RunnerOption changes how a Runner works.
type RunnerOption func(*Runner)

// WithFunctions says whether a Runner calls the functions of lua.Library
// (FCALL) instead of the scripts (EVALSHA): see Config.Functions.
func WithFunctions(on bool) RunnerOption { return func(r *Runner) { r.functions = on } }

// maxLoads is how often one call loads the library. Once is enough, and twice
// where a slot is on its way to another node; more is for a Redis that is
// flushed meanwhile.
const maxLoads = 5

// fcall runs a function, and loads the library where Redis does not know it: a
// restart, a failover, a new node or FUNCTION FLUSH is not a failure. What was
// not found was not executed, so to call again counts nothing twice.
func (r *Runner) fcall(ctx context.Context, function string, keys, argv []string) (any, error) {
	raw, err := r.once(ctx, "fcall", function, keys, argv)
	for loads := 0; err != nil && redis.HasErrorPrefix(err, "Function not found"); loads++ {
		if loads == maxLoads {
			// No reply of Redis in the chain: to a breaker this is a failure.
			return nil, fmt.Errorf("global: Redis does not know %s after %d loads", function, loads)
		}
		owner := ""
		if loads == 0 && len(keys) > 0 {
			owner = keys[0]
		}
		lacking := r.load(ctx, owner)
		if lacking != nil && owner != "" {
			return nil, lacking
		}
		// One node of many may be down, and need not be the one that is asked.
		raw, err = r.once(ctx, "fcall", function, keys, argv)
		if err != nil && lacking != nil && redis.HasErrorPrefix(err, "Function not found") {
			return nil, lacking
		}
	}
	if err != nil && redis.HasErrorPrefix(err, "unknown command") {
		err = fmt.Errorf("global: Config.Functions needs Redis 7 or newer: %w", err)
	}
	return raw, err
}

// load loads the library on the node that owns a key, or on all if the key is
// empty. Only within a call that has begun.
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
	return fmt.Errorf("global: FUNCTION LOAD, which Config.Functions needs: %w", err)
}

// process sends a command.
type process func(context.Context, redis.Cmder) error

// onNodes runs f on the node that owns a key, or on every node that may own
// one. With a client that is none of go-redis's it is wherever that sends it.
func (r *Runner) onNodes(ctx context.Context, owner string, f func(context.Context, process) error) error {
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
		return each(ctx, func(ctx context.Context, c *redis.Client) error { return f(ctx, c.Process) })
	}
	c, err := of(ctx, owner)
	if err != nil {
		return err
	}
	return f(ctx, c.Process)
}
