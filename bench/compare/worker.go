package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// request is a command to a worker.
type request struct {
	Open       bool // open the limiter only
	Workload   workload
	Goroutines int
	Slice      slice
}

// reply is the answer to a request.
type reply struct {
	Figures figures
	Limit   hybridlimit.Limit
	// PerKey is the bytes of heap for a key of the workload uniform.
	PerKey float64
}

// worker measures one rival.
type worker interface {
	do(request) (reply, error)
	Close() error
}

// bench is a worker in this process.
type bench struct {
	ctx   context.Context
	rival rivals.Rival
	redis *redistest.Server
	rdb   *redis.Client
	seqs  map[string][]string // by workload
	open  map[string]opened
}

type opened struct {
	subject
	limit  hybridlimit.Limit
	perKey float64
	many   bool // it holds many keys
}

var _ worker = (*bench)(nil)

// newBench starts a redis-server if the rival needs one.
func newBench(ctx context.Context, r rivals.Rival) (*bench, error) {
	b := &bench{ctx: ctx, rival: r, seqs: map[string][]string{}, open: map[string]opened{}}
	if r.Where == rivals.InMemory {
		return b, nil
	}
	var err error
	if b.redis, err = redistest.Start(); err != nil {
		return nil, err
	}
	b.rdb = redis.NewClient(&redis.Options{
		Addr: b.redis.Addr(), PoolSize: 64,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return b, nil
}

func (b *bench) Close() error {
	var errs []error
	for _, o := range b.open {
		errs = append(errs, o.limiter.Close())
	}
	if b.redis != nil {
		errs = append(errs, b.rdb.Close())
		b.redis.Close()
	}
	return errors.Join(errs...)
}

func (b *bench) do(r request) (reply, error) {
	o, err := b.subject(r)
	if err != nil || r.Open {
		return reply{Limit: o.limit, PerKey: o.perKey}, err
	}
	if r.Workload.Fresh {
		if err := b.drop(r.Workload.Name); err != nil {
			return reply{}, err
		}
	}
	f, err := o.turn(b.ctx, r.Goroutines, r.Slice)
	return reply{Figures: f, Limit: o.limit, PerKey: o.perKey}, err
}

// drop closes the limiters with many keys of other workloads, and forgets these keys. They are made again when they are
// used. New keys are garbage soon, and the collector would have to look at all others too.
func (b *bench) drop(but string) error {
	var errs []error
	for id, o := range b.open {
		if o.many && id != but {
			errs = append(errs, o.limiter.Close())
			delete(b.open, id)
			delete(b.seqs, id)
		}
	}
	return errors.Join(errs...)
}

// subject returns the limiter for a workload. It is made on first use. A limit
// that is a share of the rival's own speed is found by trial.
func (b *bench) subject(r request) (opened, error) {
	w := r.Workload
	id := w.Name
	if w.Over > 0 {
		id = fmt.Sprint(w.Name, r.Goroutines)
	}
	if o, ok := b.open[id]; ok {
		return o, nil
	}
	if b.seqs[w.Name] == nil {
		b.seqs[w.Name] = w.sequence()
	}
	limit := w.Limit
	if w.Over > 0 {
		for try := range 2 { // first far below the limit, then at about this limit
			o, err := b.make(w, limit, fmt.Sprint(id, "-", try))
			if err != nil {
				return opened{}, err
			}
			_, err = o.timed(b.ctx, r.Goroutines, r.Slice.Warm)
			f, err2 := o.timed(b.ctx, r.Goroutines, 2*r.Slice.Timed)
			if err := errors.Join(err, err2, o.limiter.Close()); err != nil {
				return opened{}, err
			}
			limit = w.limitFor(float64(f.Calls) / f.Took.Seconds())
		}
	}
	o, err := b.make(w, limit, id)
	if err == nil {
		b.open[id] = o
	}
	return o, err
}

// make opens a limiter, fills it with the keys, and measures their memory.
func (b *bench) make(w workload, limit hybridlimit.Limit, name string) (opened, error) {
	var before int64
	if w.Name == uniform {
		before = heap()
	}
	env := rivals.Env{Limit: limit, Keys: w.Keys, Full: w.Fresh, Name: name}
	if b.redis != nil {
		env.Redis, env.Addr = b.rdb, b.redis.Addr()
	}
	l, err := b.rival.Open(env)
	if err != nil {
		return opened{}, err
	}
	o := opened{subject: subject{limiter: l, seq: b.seqs[w.Name], chunk: maxChunk}, limit: limit, many: w.Keys >= manyKeys}
	if w.Fresh {
		o.fresh = new(atomic.Int64)
	}
	if warmer, ok := l.(rivals.Warmer); ok {
		err = warmer.Warm(b.ctx)
	}
	if b.rival.Where == rivals.InRedis {
		o.chunk = redisChunk // its keys are not in the memory of this process
		return o, err
	}
	err = errors.Join(err, o.fill(b.ctx, w.Keys))
	if s, ok := l.(rivals.Settler); ok {
		err = errors.Join(err, s.Settle(b.ctx))
	}
	if w.Name == uniform {
		o.perKey = float64(heap()-before) / float64(w.Keys)
	}
	return o, err
}

// serve runs the process of one rival.
func serve(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	i := slices.IndexFunc(everyone, func(r rivals.Rival) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no rival %q", name)
	}
	b, err := newBench(ctx, everyone[i])
	if err != nil {
		return err
	}
	err = benchkit.Serve(ctx, in, out, func(_ context.Context, r request) (any, error) { return b.do(r) })
	return errors.Join(err, b.Close())
}

// process is a worker in its own process.
type process struct {
	name string
	*benchkit.Child
}

var _ worker = (*process)(nil)

func (p *process) do(r request) (answer reply, err error) {
	if err := p.Ask(r, &answer); err != nil {
		return answer, fmt.Errorf("%s: %w", p.name, err)
	}
	return answer, nil
}

// spawnAll starts this program again as a worker of each rival.
func spawnAll(ctx context.Context, rs []rivals.Rival) (workers []worker, err error) {
	for _, r := range rs {
		child, err := benchkit.StartChild(ctx, nil, "-worker", r.Name)
		if err != nil {
			return workers, err
		}
		workers = append(workers, &process{r.Name, child})
	}
	return workers, nil
}

func closeAll(workers []worker) {
	for _, w := range workers {
		if err := w.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
		}
	}
}
