package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// dials records the error of the last failed dial of a client. go-redis dials in the background and retries for longer
// than a call waits. A call gets only context.DeadlineExceeded, without the cause.
//
// dials is a hook of the client, since redis.Hook is the only way to observe a dial. It changes no behaviour.
type dials struct{ failed atomic.Pointer[dial] }

// dial is a failed dial.
type dial struct {
	addr string
	err  error
	at   time.Time
}

// watched maps a weak pointer to each live client to its dials, so that a client has one hook, however many runners use
// it.
var watched sync.Map

// watch returns the dials of a client, or nil for a client of an unknown type. For a client of several servers, only
// servers that it discovers from now on are watched.
func watch(rdb redis.UniversalClient) *dials {
	switch c := rdb.(type) {
	case *redis.Client:
		return hookOnce(c, func(d *dials) { c.AddHook(d) })
	case *redis.ClusterClient:
		return hookOnce(c, func(d *dials) { c.OnNewNode(func(node *redis.Client) { node.AddHook(d) }) })
	case *redis.Ring:
		return hookOnce(c, func(d *dials) { c.OnNewNode(func(node *redis.Client) { node.AddHook(d) }) })
	}
	return nil
}

func hookOnce[T any](client *T, hook func(*dials)) *dials {
	key := weak.Make(client)
	got, had := watched.LoadOrStore(key, new(dials))
	d := got.(*dials)
	if !had {
		hook(d)
		runtime.AddCleanup(client, func(key weak.Pointer[T]) { watched.Delete(key) }, key)
	}
	return d
}

// blame puts the cause before a call's context.DeadlineExceeded. The cause is a dial that failed after the call began,
// if no later dial to that address has succeeded.
func (d *dials) blame(began time.Time, err *error) {
	if d == nil || !errors.Is(*err, context.DeadlineExceeded) {
		return
	}
	if f := d.failed.Load(); f != nil && !f.at.Before(began) {
		*err = fmt.Errorf("%w (%w)", f.err, *err)
	}
}

// DialHook implements redis.Hook. It records the outcome of each dial.
func (d *dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		switch was := d.failed.Load(); {
		case err == nil && was != nil && was.addr == addr:
			d.failed.CompareAndSwap(was, nil)
		case err != nil && !errors.Is(err, context.Canceled): // a cancelled dial is no evidence against Redis
			d.failed.Store(&dial{addr, err, time.Now()})
		}
		return conn, err
	}
}

// ProcessHook implements redis.Hook. It changes nothing.
func (*dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook. It changes nothing.
func (*dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
