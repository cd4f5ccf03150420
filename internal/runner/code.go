package runner

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/lua"
)

// eval runs a script by its digest. If Redis does not know the digest, one call of the process sends the source
// (loads), and the others wait for the end of that exchange and then send the digest again. So a restart, a failover or
// SCRIPT FLUSH is no failure, and each such loss costs a process one source.
func (r *Runner) eval(ctx context.Context, script lua.Script, keys []string, argv []any) (any, error) {
	for {
		asked := r.loads.time()
		raw, err := r.once(ctx, "evalsha", script.SHA, keys, argv)
		if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return raw, err
		}
		turn, err := r.loads.begin(ctx, target{r.node(ctx, keys), script.SHA}, asked)
		if err != nil {
			return nil, err
		}
		if turn.mine != nil {
			return r.evalSource(ctx, turn.mine, script, keys, argv)
		}
	}
}

// evalSource runs a script by its source, so that Redis knows it from then on. The load ends when go-redis has
// returned. That may be after the call's deadline.
func (r *Runner) evalSource(ctx context.Context, load *load, script lua.Script, keys []string, argv []any) (any, error) {
	cmd := newCommand(ctx, "eval", script.Source, keys, argv)
	err := r.load(ctx, load, func() error {
		_ = r.sends.Load().loose(ctx, cmd) // the error is in cmd
		return cmd.Err()
	})
	if err != nil {
		return nil, err
	}
	return cmd.Result()
}

// load runs f, which sends a source. It returns when ctx ends, at the latest, and the load ends when f returns. Call it
// only between Begin and Done.
func (r *Runner) load(ctx context.Context, load *load, f func() error) error {
	return r.within(ctx, func() error {
		err := ctx.Err()
		if err == nil {
			err = r.panics.catch(f)
		}
		load.end(err)
		return err
	})
}

// everyNode stands for all nodes of a client in a target.
const everyNode = "*"

// node returns the name of the node to which the client sends commands for these keys, or "" if the client does not
// tell. Two nodes with one name share their turns; each of them still gets its load.
func (r *Runner) node(ctx context.Context, keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	node, err := r.owner(ctx, keys[0])
	if err != nil || node == nil {
		return ""
	}
	return node.Options().Addr
}

// owner returns the client of the node that has a key; nil: the client does not tell.
func (r *Runner) owner(ctx context.Context, key string) (*redis.Client, error) {
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	case *redis.Ring:
		return c.GetShardClientForKey(key)
	}
	return nil, nil
}

// many reports whether the client is for several servers.
func (r *Runner) many() bool {
	switch r.client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return true
	}
	return false
}

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
		loaded, err := r.loadOn(ctx, keys, slots && loads == 1, asked)
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

// loadOn loads the library on the node that owns the keys, or waits until another call has done so. It reports whether
// the library was loaded since asked. Without keys, or with all, it loads on all nodes, at most once in loadEvery. One
// success is enough then, since other nodes may be down. A client of a single node has only that node's loads. Call it
// only between Begin and Done.
func (r *Runner) loadOn(ctx context.Context, keys []string, all bool, asked uint64) (bool, error) {
	node, owner := "", ""
	if !all && len(keys) > 0 {
		node, owner = r.node(ctx, keys), keys[0]
	} else if r.many() {
		node = everyNode
	}
	turn, err := r.loads.begin(ctx, target{node, lua.Library.Name}, asked)
	if turn.mine == nil || err != nil {
		return turn.loaded, err
	}
	err = r.load(ctx, turn.mine, func() error { return r.sendLibrary(ctx, owner) })
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

// sendLibrary loads the library on the node that owns the key owner. If owner is empty, it loads on every master or
// shard, and fails if none succeeds. Any other client chooses the node itself.
func (r *Runner) sendLibrary(ctx context.Context, owner string) error {
	send := func(ctx context.Context, c *redis.Client) error { // may run in a goroutine of go-redis
		return r.panics.catch(func() error { return loadLibrary(ctx, c.Process) })
	}
	var each func(context.Context, func(context.Context, *redis.Client) error) error
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		each = c.ForEachMaster
	case *redis.Ring:
		each = c.ForEachShard
	default:
		return loadLibrary(ctx, r.sends.Load().loose)
	}
	if owner != "" {
		c, err := r.owner(ctx, owner)
		if err != nil {
			return err
		}
		return send(ctx, c)
	}
	var done atomic.Bool
	err := each(ctx, func(ctx context.Context, c *redis.Client) error {
		err := send(ctx, c)
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
