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

// memory is what the runners of one client share.
type memory struct {
	dials dials
	loads *loads
	ahead lead // of Redis's clock
}

func newMemory() *memory { return &memory{loads: newLoads()} }

var memories sync.Map

// memoryOf returns the memory of a client. Runners of one client share it, unless its type is unknown. For a client of
// several servers, only servers that it discovers from now on have their dials recorded.
func memoryOf(rdb redis.UniversalClient) *memory {
	switch c := rdb.(type) {
	case *redis.Client:
		return share(c, func(d *dials) { c.AddHook(d) })
	case *redis.ClusterClient:
		return share(c, func(d *dials) { c.OnNewNode(func(node *redis.Client) { node.AddHook(d) }) })
	case *redis.Ring:
		return share(c, func(d *dials) { c.OnNewNode(func(node *redis.Client) { node.AddHook(d) }) })
	}
	return newMemory()
}

func share[T any](client *T, hook func(*dials)) *memory {
	got, had := keep(&memories, client, newMemory())
	m := got.(*memory)
	if !had {
		hook(&m.dials)
	}
	return m
}

// keep returns the value that a map has for a client. It stores fresh for a client that the map does not have. The key
// is a weak pointer, so that the map keeps no client alive, and forgets those that are gone.
func keep[T any](m *sync.Map, client *T, fresh any) (value any, had bool) {
	key := weak.Make(client)
	value, had = m.LoadOrStore(key, fresh)
	if !had {
		runtime.AddCleanup(client, func(key weak.Pointer[T]) { m.Delete(key) }, key)
	}
	return value, had
}

// dials records the error of the last failed dial of a client. go-redis dials in the background and retries for longer
// than a call waits. A call gets only context.DeadlineExceeded, without the cause.
//
// dials is a hook of the client, since redis.Hook is the only way to observe a dial. It changes no behaviour.
type dials struct {
	pass
	failed atomic.Pointer[dial]
}

// dial is a failed dial.
type dial struct {
	addr string
	err  error
	at   time.Time
}

// blame puts the cause before a call's context.DeadlineExceeded. The cause is a dial that failed after the call began,
// if no later dial to that address has succeeded.
func (d *dials) blame(began time.Time, err *error) {
	if !errors.Is(*err, context.DeadlineExceeded) {
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

// pass is a redis.Hook that changes nothing.
type pass struct{}

// DialHook implements redis.Hook.
func (pass) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (pass) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (pass) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// process sends a command.
type process func(context.Context, redis.Cmder) error

// sends is how a Runner sends commands: loose with time-outs of at most timeout. strict also ends at the deadline of its
// context, whether the client's ContextTimeoutEnabled is on or off. It is nil if that is impossible.
type sends struct {
	timeout       time.Duration // 0: the client's own
	loose, strict process
}

// bounded returns the sends of a client.
//
// WithTimeout alone loses c's hooks (go-redis 9.23), and with them its traces. A Conn inherits the hooks. The Conn here
// passes each command to the copy with the time-out, so it never takes a connection itself.
func bounded(c *redis.Client, timeout time.Duration) *sends {
	s := &sends{timeout: timeout}
	if own := c.Options().ReadTimeout; own > 0 { // otherwise c waits for ever
		timeout = min(timeout, own)
	}
	s.loose = hooked(c, c.WithTimeout(timeout))
	ends := c.WithTimeout(timeout)
	ends.Options().ContextTimeoutEnabled = true // of this copy only
	if ends.Options().ContextTimeoutEnabled {
		s.strict = hooked(c, ends)
	}
	return s
}

// hooked returns the Process of to with the hooks of c.
func hooked(c, to *redis.Client) process {
	conn := c.Conn()
	conn.AddHook(handOn{to: to})
	return conn.Process
}

// handOn is the innermost hook of a client. It lets another client run the commands.
type handOn struct {
	pass
	to *redis.Client
}

// ProcessHook implements redis.Hook.
func (h handOn) ProcessHook(redis.ProcessHook) redis.ProcessHook { return h.to.Process }
