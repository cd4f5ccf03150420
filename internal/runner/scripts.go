package runner

import (
	"context"
	"fmt"

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
		_ = r.process(ctx, cmd) // the error is in cmd
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
	var node *redis.Client
	var err error
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		node, err = c.MasterForKey(ctx, keys[0])
	case *redis.Ring:
		node, err = c.GetShardClientForKey(keys[0])
	}
	if err != nil || node == nil {
		return ""
	}
	return node.Options().Addr
}

// missingError explains that code is missing in Redis and was not loaded.
func missingError(cause error) error {
	return fmt.Errorf("hybridlimit: Redis does not have the library's code, and the last attempt to load it failed: %w", cause)
}
