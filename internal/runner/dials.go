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

// dials notes how the last dial of a client failed. go-redis dials in the
// background, again and again for longer than a call waits, and tells no call
// why: all that a call hears is that its time is over.
//
// It is a hook of the client, which changes nothing: redis.Hook is the only way
// to hear of a dial.
type dials struct{ failed atomic.Pointer[dial] }

// dial is one that failed.
type dial struct {
	addr string
	err  error
	at   time.Time
}

// watched has the dials of each client that is alive, by a weak pointer to it,
// so that a client has one hook, however many runners it gets.
var watched sync.Map

// watch returns the dials of a client; nil for a client that this package does
// not know. Of a client of several servers they are those of the servers that it
// comes to know from now on.
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

// blame puts the reason before the error of a call that began at a time and
// waited in vain, where a dial has failed since, and none to that address has
// come through after it.
func (d *dials) blame(began time.Time, err *error) {
	if d == nil || !errors.Is(*err, context.DeadlineExceeded) {
		return
	}
	if f := d.failed.Load(); f != nil && !f.at.Before(began) {
		*err = fmt.Errorf("%w (%w)", f.err, *err)
	}
}

// DialHook is for redis.Hook. It notes what becomes of each dial.
func (d *dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		switch was := d.failed.Load(); {
		case err == nil && was != nil && was.addr == addr:
			d.failed.CompareAndSwap(was, nil)
		case err != nil && !errors.Is(err, context.Canceled): // which says nothing of Redis
			d.failed.Store(&dial{addr, err, time.Now()})
		}
		return conn, err
	}
}

// ProcessHook is for redis.Hook. It changes nothing.
func (*dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook is for redis.Hook. It changes nothing.
func (*dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
