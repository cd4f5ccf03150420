package runner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Runner runs scripts on Redis: each call is sent once and returns by its
// deadline. It is safe for concurrent use.
type Runner struct {
	client    redis.UniversalClient
	process   process // of the client
	functions bool    // FCALL, not EVALSHA
	dials     *dials  // of the client
	panics    panics

	mu     sync.Mutex // guards closed against the start of a call
	closed bool
	calls  sync.WaitGroup // calls in progress, and commands that go-redis has not returned from
}

// CheckClient is ErrNilClient for a nil client, also for a nil pointer in the
// interface.
func CheckClient(rdb redis.UniversalClient) error {
	if rdb == nil {
		return hybridlimit.ErrNilClient
	}
	if v := reflect.ValueOf(rdb); v.Kind() == reflect.Pointer && v.IsNil() {
		return hybridlimit.ErrNilClient
	}
	return nil
}

// New wraps a client. A client that can bound its own reads and writes
// (*redis.Client) is told to give up after timeout, unless it does so sooner,
// so that a call which hangs does not outlive its caller by the client's 5 s
// default. That works on a copy, which shares the client's connections and
// has the hooks that it has by now. A nil client is ErrNilClient.
//
// Connections that a client of go-redis dials from now on are guarded: to the
// commands of this package, and to what go-redis sends for them, they pass on no
// reply that is longer than Redis can give. What others ask on the same client
// is answered as before. Why a dial failed is noted: so an error of a call that
// waited for a connection in vain names the reason, "connection refused", besides
// context.DeadlineExceeded. Both are hooks of the client, of which only the
// dialling does anything; they stay.
func New(rdb redis.UniversalClient, timeout time.Duration, opts ...Option) (*Runner, error) {
	if err := CheckClient(rdb); err != nil {
		return nil, err
	}
	guard(rdb)
	r := &Runner{client: rdb, process: rdb.Process, dials: watch(rdb)}
	if c, ok := rdb.(*redis.Client); ok && timeout > 0 {
		r.process = bounded(c, timeout)
	}
	for _, opt := range opts {
		opt(r)
	}
	return r, nil
}

// Close refuses further calls and waits for those in progress, until go-redis
// has returned from each. A call that hangs is bounded by the client's own
// time-outs.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.calls.Wait()
}

// Client returns the client that New wrapped.
func (r *Runner) Client() redis.UniversalClient { return r.client }

// Begin keeps the Runner open for the calls All and BatchWithin until Done. It
// reports false if the Runner is closed; Done is not called then.
func (r *Runner) Begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.calls.Add(1)
	}
	return !r.closed
}

// Done ends what Begin began.
func (r *Runner) Done() { r.calls.Done() }

// Batch runs one batch of ops in one slot. With an envelope it may be called
// again with the same arguments until it is answered, and is applied once. The
// answer to more than wire.MaxOps ops may be refused.
//
// A batch that Redis read and did not apply, and never will, is wire.ErrRefused.
func (r *Runner) Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error) {
	if !r.Begin() {
		return wire.Reply{}, hybridlimit.ErrClosed
	}
	defer r.calls.Done()
	keys, argv := wire.EncodeBatch(env, ops)
	reply, err := r.batch(ctx, keys, argv, ops)
	if err == nil {
		err = reply.Check(env, ops)
	}
	if err != nil {
		return wire.Reply{}, err
	}
	return reply, nil
}

// batch runs encoded ops. It needs Begin.
func (r *Runner) batch(ctx context.Context, keys, argv []string, ops []wire.Op) (wire.Reply, error) {
	raw, err := r.send(ctx, lua.Batch, lua.Library.Batch, keys, argv)
	if redis.HasErrorPrefix(err, "HLBATCH") {
		err = fmt.Errorf("%w: %w", wire.ErrRefused, err)
	}
	if err != nil {
		return wire.Reply{}, err
	}
	return wire.DecodeReply(raw, len(ops))
}

// BatchWithin runs one batch of ops without an envelope, like Batch, between
// Begin and Done: so a call that has begun can still give back what it took
// after the Runner was closed.
func (r *Runner) BatchWithin(ctx context.Context, ops []wire.Op) error {
	keys, argv := wire.EncodeBatch(wire.Envelope{}, ops)
	_, err := r.batch(ctx, keys, argv, ops)
	return err
}

// All runs ops in one slot that get all that they ask for, or nothing. Call it
// between Begin and Done.
func (r *Runner) All(ctx context.Context, ops []wire.Op) (wire.Reply, error) {
	keys, argv := wire.EncodeAll(ops)
	reply, err := r.batch(ctx, keys, argv, ops)
	if err == nil {
		err = reply.CheckAll(ops)
	}
	if err != nil {
		return wire.Reply{}, err
	}
	return reply, nil
}

// History asks for a page of what a key has admitted under a sliding log, after
// a time in µs of Redis time or from the begin (0). It holds wire.MaxHistory
// entries at most; wire.ReadHistory puts pages together.
func (r *Runner) History(ctx context.Context, key string, limit hybridlimit.Limit, after int64) (wire.Page, error) {
	keys, argv := wire.EncodeHistory(key, limit, after, wire.MaxHistory)
	raw, err := r.run(ctx, lua.History, lua.Library.History, keys, argv)
	if err != nil {
		return wire.Page{}, err
	}
	return wire.DecodeHistory(raw)
}

// Heartbeat notes that a process is alive and returns how many are, and what
// their fleet was told. With Leave it takes the process out instead.
func (r *Runner) Heartbeat(ctx context.Context, p wire.Pulse) (wire.Beat, error) {
	keys, argv := wire.EncodePulse(p)
	raw, err := r.run(ctx, lua.Fleet, lua.Library.Heartbeat, keys, argv)
	if err != nil {
		return wire.Beat{}, err
	}
	return wire.DecodeBeat(raw)
}

// SetSwitch sets the fleet's switch of a limiter, whose key is that of
// lua.Names.Switch, and returns it with its time. It lives for ttl, or as long
// as heartbeats renew it.
func (r *Runner) SetSwitch(ctx context.Context, key string, to int64, ttl time.Duration) (wire.Flag, error) {
	return r.flag(ctx, func() (keys, argv []string) { return wire.EncodeSwitch(key, to, ttl) })
}

// Switch returns the fleet's switch of a limiter.
func (r *Runner) Switch(ctx context.Context, key string) (wire.Flag, error) {
	return r.flag(ctx, func() (keys, argv []string) { return wire.EncodeSwitchRead(key) })
}

func (r *Runner) flag(ctx context.Context, encode func() (keys, argv []string)) (wire.Flag, error) {
	keys, argv := encode()
	raw, err := r.run(ctx, lua.SetSwitch, lua.Library.SetSwitch, keys, argv)
	if err != nil {
		return wire.Flag{}, err
	}
	return wire.DecodeSwitch(raw)
}

// run runs a script, or the function that does the same.
func (r *Runner) run(ctx context.Context, script lua.Script, function string, keys, argv []string) (any, error) {
	if !r.Begin() {
		return nil, hybridlimit.ErrClosed
	}
	defer r.calls.Done()
	return r.send(ctx, script, function, keys, argv)
}

// send is run within a call that has begun.
func (r *Runner) send(ctx context.Context, script lua.Script, function string, keys, argv []string) (any, error) {
	call := func() (any, error) { return r.eval(ctx, script, keys, argv) }
	if r.functions {
		call = func() (any, error) { return r.fcall(ctx, function, script, keys, argv) }
	}
	raw, err := call()
	if errors.Is(err, redis.Nil) { // for others an answer like any; none that the library gives
		err = fmt.Errorf("%w: nothing", wire.ErrReply)
	}
	return raw, err
}

// eval runs a script by its digest, and by its source where Redis does not
// know it: a restart, a failover or SCRIPT FLUSH is not a failure.
func (r *Runner) eval(ctx context.Context, script lua.Script, keys, argv []string) (any, error) {
	raw, err := r.once(ctx, "evalsha", script.SHA, keys, argv)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		raw, err = r.once(ctx, "eval", script.Source, keys, argv)
	}
	return raw, err
}

// onceCmd is a command that go-redis does not send again.
type onceCmd struct{ *redis.Cmd }

// NoRetry stops go-redis from repeating a call whose reply was lost.
func (onceCmd) NoRetry() bool { return true }

// once sends one command. Only within a call that has begun.
func (r *Runner) once(ctx context.Context, verb, script string, keys, argv []string) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, verb, script, len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	for _, a := range argv {
		args = append(args, a)
	}
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	if err := r.within(ctx, func() error {
		_ = r.process(ctx, cmd) // the error is in cmd
		return cmd.Err()
	}); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// within runs f and returns by ctx's end, whatever go-redis does: by default it
// ignores a deadline until its own read time-out. Only within a call that has
// begun.
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
	case err := <-done: // in time, but nobody had looked
		return ended(ctx, err)
	default:
		return ctx.Err()
	}
}

// ended is what to say of a call that ended with err.
func ended(ctx context.Context, err error) error {
	if err != nil && expired(ctx) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// expired reports whether ctx's deadline has passed. That can be seen a moment
// before ctx ends: a client that sets ctx's deadline on its connection has a
// timer of its own for the same instant.
func expired(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ok && !time.Now().Before(at)
}
