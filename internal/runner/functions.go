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

// WithFunctions makes a Runner call the functions of lua.Library (FCALL) if on is true, and the scripts (EVALSHA)
// otherwise.
func WithFunctions(on bool) Option { return func(r *Runner) { r.functions = on } }

// fcall runs a function. It loads the library if Redis does not know it: a restart, a failover, a new node or FUNCTION
// FLUSH is not a failure. A function that was not found was not executed, so a second call counts nothing twice. One
// call of the process loads, and the others wait (loads).
//
// In a cluster, the script runs instead if the function is still not found after two loads. That happens while a slot
// moves to a node that owns no slot yet: go-redis follows an ASK redirection, and does not report the node. It can also
// happen during repeated FUNCTION FLUSH. For loadEvery after that, calls that do not find the function load nothing and
// run the script at once. After a failed load no script runs, and the error is that of the load.
func (r *Runner) fcall(ctx context.Context, function string, script lua.Script, keys []string, argv []any) (any, error) {
	_, slots := r.client.(*redis.ClusterClient)
	for loads := 0; ; {
		asked := r.loads.time()
		raw, err := r.once(ctx, "fcall", function, keys, argv)
		if !redis.HasErrorPrefix(err, "Function not found") {
			return raw, withoutFunctions(err)
		}
		if slots && loads == 2 {
			r.loads.inVain()
		}
		if r.loads.recentlyInVain() {
			return r.eval(ctx, script, keys, argv)
		}
		load := r.loadOwner
		if slots && loads == 1 {
			load = r.loadAll
		}
		loaded, err := load(ctx, keys, asked)
		if err != nil {
			return nil, err
		}
		if loaded { // otherwise a load failed meanwhile, and the next turn returns its error
			loads++
		}
	}
}

// withoutFunctions explains the error of a Redis without functions.
func withoutFunctions(err error) error {
	if redis.HasErrorPrefix(err, "unknown command") {
		return fmt.Errorf("hybridlimit: Config.Functions needs Redis 7 or newer: %w", err)
	}
	return err
}

// loadOwner loads the library on the node that owns the keys, or waits until another call has done so. It reports
// whether the library was loaded since asked. Without keys it is loadAll. Call it only between Begin and Done.
func (r *Runner) loadOwner(ctx context.Context, keys []string, asked uint64) (bool, error) {
	if len(keys) == 0 {
		return r.loadAll(ctx, keys, asked)
	}
	return r.loadOn(ctx, r.node(ctx, keys), keys[0], asked)
}

// loadAll loads the library on all nodes, at most once in loadEvery. One success is enough, since other nodes may be
// down. A client of a single node has only that node's loads. Call it only between Begin and Done.
func (r *Runner) loadAll(ctx context.Context, _ []string, asked uint64) (bool, error) {
	switch r.client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return r.loadOn(ctx, everyNode, "", asked)
	}
	return r.loadOn(ctx, "", "", asked)
}

// loadOn loads the library on the node that owns the key owner, or on all nodes if owner is empty. node is the name of
// the target.
func (r *Runner) loadOn(ctx context.Context, node, owner string, asked uint64) (bool, error) {
	turn, err := r.loads.begin(ctx, target{node, lua.Library.Name}, asked)
	if turn.mine == nil || err != nil {
		return turn.loaded, err
	}
	err = r.load(ctx, turn.mine, func() error { return r.onNodes(ctx, owner, loadLibrary) })
	return err == nil, err
}

// loadLibrary loads without REPLACE. The name contains a hash of the library, so a library of that name has the same
// content. When a thousand calls find it missing, Redis compiles and replicates it once and not a thousand times.
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

// onNodes runs f on the node that owns the key owner. If owner is empty, it runs f on every master or shard, and fails
// if none succeeds. For any other client, f runs once, with the client's own choice of a node.
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
