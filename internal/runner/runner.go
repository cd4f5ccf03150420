package runner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Runner runs scripts on Redis. Each call is sent once and returns by its deadline. A Runner is safe for concurrent
// use.
type Runner struct {
	client    redis.UniversalClient
	sends     atomic.Pointer[sends]
	functions bool // FCALL, not EVALSHA
	panics    panics
	*memory               // of the client
	slots     atomic.Bool // see Apart

	mu     sync.Mutex // guards closed against the start of a call
	closed bool
	calls  sync.WaitGroup // calls in progress, and commands still in go-redis
}

// Option changes how a Runner works.
type Option func(*Runner)

// WithFunctions makes a Runner call the functions of lua.Library (FCALL) if on is true, and the scripts (EVALSHA)
// otherwise.
func WithFunctions(on bool) Option { return func(r *Runner) { r.functions = on } }

// CheckClient returns ErrNilClient for a nil client, also for a nil pointer in the interface.
func CheckClient(rdb redis.UniversalClient) error {
	if rdb == nil {
		return hybridlimit.ErrNilClient
	}
	if v := reflect.ValueOf(rdb); v.Kind() == reflect.Pointer && v.IsNil() {
		return hybridlimit.ErrNilClient
	}
	return nil
}

// New returns a Runner for a client. A nil client is ErrNilClient.
//
// For a *redis.Client, reads and writes of the Runner time out after timeout, or after the client's own time-out if
// that is shorter. So a call that hangs does not outlive its caller by the client's default of 5 s. The Runner uses a
// copy for this. The copy shares the client's connections and has the hooks that the client has now.
//
// New adds two permanent hooks to a client of go-redis. They act on dials only:
//
//   - Connections that the client dials from now on are guarded. To the commands of this package, and to those that
//     go-redis sends for them, they pass on no reply that is longer than Redis can give. Other commands on the same
//     client are answered as before.
//   - The cause of a failed dial is recorded. The error of a call that waited for a connection in vain names it
//     ("connection refused") besides context.DeadlineExceeded.
func New(rdb redis.UniversalClient, timeout time.Duration, opts ...Option) (*Runner, error) {
	if err := CheckClient(rdb); err != nil {
		return nil, err
	}
	guard(rdb)
	r := &Runner{client: rdb, memory: memoryOf(rdb), panics: panics{line: sometimes.Every(logEvery)}}
	r.sends.Store(&sends{loose: rdb.Process})
	r.SetTimeout(timeout)
	for _, opt := range opts {
		opt(r)
	}
	return r, nil
}

// SetTimeout changes the time-out of reads and writes of further calls. Zero: that of the client. It makes another copy
// of the client if timeout is more than the last one, or less than half of it. So a time-out may be twice as long.
func (r *Runner) SetTimeout(timeout time.Duration) {
	c, ok := r.client.(*redis.Client)
	if now := r.sends.Load().timeout; !ok || timeout <= 0 || now/2 <= timeout && timeout <= now {
		return
	}
	r.sends.Store(bounded(c, timeout))
}

// Close makes further calls return ErrClosed. It waits until go-redis has returned from each call in progress. The
// client's own time-outs bound a call that hangs.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.calls.Wait()
}

// Client returns the client that New wrapped.
func (r *Runner) Client() redis.UniversalClient { return r.client }

// Begin keeps the Runner open for All and BatchWithin until Done. It returns false if the Runner is closed; do not call
// Done then.
func (r *Runner) Begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.calls.Add(1)
	}
	return !r.closed
}

// Done ends the call that Begin began.
func (r *Runner) Done() { r.calls.Done() }

// Batch runs one batch of ops in one slot. With an envelope, it may be called again with the same arguments until there
// is an answer, and Redis applies it once. The answer to more than wire.MaxOps ops may be rejected.
//
// The error is wire.ErrRefused if Redis read the batch, did not apply it, and never will.
func (r *Runner) Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error) {
	if !r.Begin() {
		return wire.Reply{}, hybridlimit.ErrClosed
	}
	defer r.calls.Done()
	run := func(ops []wire.Op) (wire.Reply, error) {
		keys, argv := wire.EncodeBatch(env, ops)
		return r.batch(ctx, keys, boxed(argv), ops, func(reply wire.Reply) error { return reply.Check(env, ops) })
	}
	if env.Seq > 0 { // it may be sent again, and then it must be the same
		return run(ops)
	}
	return r.inPeriods(ctx, ops, run)
}

// batch runs encoded ops, and checks the reply. Call it only between Begin and Done.
func (r *Runner) batch(
	ctx context.Context, keys []string, argv []any, ops []wire.Op, check func(wire.Reply) error,
) (wire.Reply, error) {
	raw, err := r.send(ctx, lua.Batch, lua.Library.Batch, keys, argv)
	if err != nil {
		return wire.Reply{}, err
	}
	reply, err := wire.DecodeReply(raw, ops)
	if err == nil {
		err = check(reply)
	}
	if err != nil {
		return wire.Reply{}, err
	}
	return reply, nil
}

// BatchWithin is Batch without an envelope, for use between Begin and Done. So a call that has begun can still give its
// units back after Close.
func (r *Runner) BatchWithin(ctx context.Context, ops []wire.Op) error {
	_, err := r.inPeriods(ctx, ops, func(ops []wire.Op) (wire.Reply, error) {
		keys, argv := wire.EncodeBatch(wire.Envelope{}, ops)
		return r.batch(ctx, keys, boxed(argv), ops, func(reply wire.Reply) error { return reply.Check(wire.Envelope{}, ops) })
	})
	return err
}

// All runs ops in one slot. Redis grants all of their asks, or none. Call it only between Begin and Done.
func (r *Runner) All(ctx context.Context, ops []wire.Op) (wire.Reply, error) {
	return r.inPeriods(ctx, ops, func(ops []wire.Op) (wire.Reply, error) {
		keys, argv := wire.EncodeAll(ops)
		return r.batch(ctx, keys, boxed(argv), ops, func(reply wire.Reply) error { return reply.CheckAll(ops) })
	})
}

// send runs a script, or the function of the same effect. Call it only between Begin and Done.
func (r *Runner) send(ctx context.Context, script lua.Script, function string, keys []string, argv []any) (raw any, err error) {
	if r.functions {
		raw, err = r.fcall(ctx, function, script, keys, argv)
	} else {
		raw, err = r.eval(ctx, script, keys, argv)
	}
	if err == nil {
		return raw, nil
	}
	if errors.Is(err, redis.Nil) { // the scripts never answer nil
		return nil, fmt.Errorf("%w: nil instead of a value", wire.ErrReply)
	}
	for _, m := range meanings {
		if redis.HasErrorPrefix(err, m.prefix) {
			return nil, fmt.Errorf("%w: %w", m.err, err)
		}
	}
	return nil, err
}

// meanings has the errors of the scripts, by the beginning of their text. The first that fits counts.
var meanings = []struct {
	prefix string
	err    error
}{
	{"HLBATCH", wire.ErrRefused},
	{"HLFLEET", wire.ErrRefused},
	{"HLFULL", wire.ErrFull},
	{"HLPERMITS stale", permits.ErrStale},
	{"HLPERMITS", wire.ErrRefused},
	{"HLRATES", wire.ErrRefused},
}

// within runs f and returns when ctx ends, at the latest. By default, go-redis ignores a deadline until its own read
// time-out. Call within only between Begin and Done.
func (r *Runner) within(ctx context.Context, f func() error) (err error) {
	defer r.dials.blame(time.Now(), &err)
	done := make(chan error, 1)
	r.calls.Go(func() { done <- r.panics.catch(f) })
	select {
	case err := <-done:
		return ended(ctx, err)
	case <-ctx.Done():
	}
	select {
	case err := <-done: // f returned as well, and select chose ctx.Done
		return ended(ctx, err)
	default:
		return ctx.Err()
	}
}

// ended returns the error of a call that ended with err: ctx's error if the call failed and the deadline has passed,
// else err. The deadline can pass a moment before ctx ends: a client that sets ctx's deadline on its connection has its
// own timer for the same instant.
func ended(ctx context.Context, err error) error {
	if at, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(at) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// Together reports whether keys of several tags may be in one message: the client is for a single Redis, and that has
// not refused such a message.
func (r *Runner) Together() bool { return !r.many() && !r.slots.Load() }

// Apart returns wire.CrossSlot of an error. After one, Together is false.
func (r *Runner) Apart(err error) bool {
	is := wire.CrossSlot(err)
	if is {
		r.slots.Store(true)
	}
	return is
}
