package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// subject is the limiter of one process.
type subject interface {
	AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

// process is one life of a process. A process that starts again after a crash is a new value with the same number.
type process struct {
	w       *world
	number  int
	subject subject
	limiter *hybrid.Limiter    // nil for the kinds without Redis
	views   []*hybrid.Limiter  // the limiter and, with classes, the views of the other calls
	link    *redistest.MemLink // nil for the kinds without Redis
	pusher  *pusher            // CountAndPush only

	ended  atomic.Bool // no more decisions
	paused atomic.Bool
	held   int // number of holds on its link: see hold

	journal []*call
	calls   sync.WaitGroup // the driver, and calls that wait

	neighbours *neighbours.Set // nil: the hub has one limiter

	mu   sync.Mutex // guards gate
	gate chan struct{}
}

// launch starts a process, and the rest of its load.
func (w *world) launch(number int) *process {
	life := 0
	for _, p := range w.procs {
		if p.number == number {
			life++
		}
	}
	p := &process{w: w, number: number, gate: make(chan struct{})}
	close(p.gate)
	net := &network{w: w, process: number, rng: w.rng(forNetwork, number, life)}
	switch w.s.Kind {
	case CentralExact:
		p.subject = w.shared
	case CountAndPush:
		p.pusher = newPusher(w, net, p.wait)
		p.subject = p.pusher
	default:
		p.link = w.bubble.Link()
		p.link.Latency(w.s.Latency/2, w.s.Latency-w.s.Latency/2)
		p.link.Script(net.judge)
		rdb := p.link.Client(func(o *redis.Options) { o.PoolSize = poolFor })
		l, err := hybrid.New(rdb, w.s.Limit, w.config())
		if err != nil {
			w.t.Fatal(err)
		}
		p.limiter, p.subject, p.views = l, l, []*hybrid.Limiter{l}
		for i := range w.floors {
			rest, err := l.Class(restOfCalls(i))
			if err != nil {
				w.t.Fatal(err)
			}
			p.views = append(p.views, rest)
		}
		if w.s.Neighbours > 0 {
			p.neighbours = w.neighbours(l.Hub(), w.rng(forNeighbours, number, life).Uint64())
			p.calls.Go(p.callNeighbours)
		}
	}
	if w.hung > 0 {
		p.hold(w.hung)
	}
	w.procs = append(w.procs, p)
	calls := w.s.spiked(w.rng(forSpikes, number, life), w.callsOf(number, life))
	p.calls.Go(func() { p.drive(calls) })
	return p
}

// callsOf returns a function that returns the next call of a process.
func (w *world) callsOf(number, life int) func() (arrival, bool) {
	joined := number >= w.s.Processes
	switch {
	case w.plan != nil && joined:
		return take(nil)
	case w.plan != nil:
		return take(w.plan[number])
	}
	part := 1 / float64(w.s.Processes)
	if !joined {
		part = w.parts[number]
	}
	return newStream(w.rng(forCalls, number, life), w.s, w.loads, part).take
}

// drive makes the calls at their times. Calls of a paused or ended process are dropped.
func (p *process) drive(next func() (arrival, bool)) {
	born, classes := p.w.since(), p.w.rng(forClasses, p.number, 0)
	for {
		a, ok := next()
		if !ok {
			return
		}
		if a.at < born {
			continue
		}
		time.Sleep(time.Duration(a.at - p.w.since()))
		if p.ended.Load() {
			return
		}
		if p.paused.Load() {
			continue
		}
		important := p.w.s.Critical > 0 && classes.Float64() < p.w.s.Critical
		c := &call{
			at: a.at, cost: a.cost, key: int32(a.key), process: int32(p.number), important: important || a.spike, spike: a.spike,
		}
		p.journal = append(p.journal, c)
		if rest := len(p.views) - 1; rest > 0 && !c.important {
			c.view = 1
			if rest > 1 {
				c.view += int8(classes.IntN(rest))
			}
		}
		if p.limiter != nil { // it may wait
			p.calls.Go(func() { p.decide(c) })
		} else {
			p.decide(c)
		}
	}
}

func (p *process) decide(c *call) {
	subject := p.subject
	if c.view > 0 {
		subject = p.views[c.view]
	}
	res, err := subject.AllowN(context.Background(), p.w.keys[c.key], c.cost)
	if p.w.mutant != nil {
		res = p.w.mutant(res)
	}
	if p.w.dawdle > 0 {
		time.Sleep(p.w.dawdle)
	}
	c.end = p.w.since()
	c.spent = c.end
	if err != nil {
		c.void = true
		if !errors.Is(err, hybridlimit.ErrClosed) || !p.ended.Load() {
			p.w.violate("AllowN at %v of p%d: %v", time.Duration(c.at), p.number, err)
		}
		return
	}
	c.source, c.allowed, c.delay = res.Source, res.Allowed, int64(res.Delay)
	if res.Source == hybridlimit.SourceRedis {
		c.spent = max(c.at, c.end-int64(p.w.s.Latency-p.w.s.Latency/2))
	}
}

// hold stops (1) or releases (-1) the messages in flight, in both directions. Several holds may be active at once.
func (p *process) hold(by int) {
	was := p.held > 0
	p.held += by
	if is := p.held > 0; is == was {
		return
	} else if p.link != nil && is {
		p.link.Pause()
	} else if p.link != nil {
		p.link.Resume()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held > 0 {
		p.gate = make(chan struct{})
	} else {
		close(p.gate)
	}
}

// wait blocks while the process is held. Only a pusher uses it, because it has no link.
func (p *process) wait() {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	<-gate
}

// ops returns the number of ops that the process has sent so far.
func (p *process) ops() int64 {
	switch {
	case p.limiter != nil:
		return int64(p.limiter.Hub().Stats().Ops)
	case p.pusher != nil:
		p.pusher.mu.Lock()
		defer p.pusher.mu.Unlock()
		return p.pusher.ops
	}
	return 0
}

// crash ends the process without a shutdown. Messages that it had sent may still arrive.
func (p *process) crash() {
	p.ended.Store(true)
	if p.limiter != nil {
		p.limiter.Close()
		p.w.giveUp(p.limiter.Stats().Lost, false)
	}
	if p.pusher != nil {
		p.pusher.close()
	}
}

// leaveWithin is the time limit of an orderly end in a fleet whose Redis does not answer.
const leaveWithin = 5 * time.Second

// leave ends the process in order. It returns an error if units stay unpaid. It also records that a sync may be in
// flight: while the breaker is open, Shutdown does not wait for a sync that pays no units.
func (p *process) leave() error {
	p.ended.Store(true)
	if p.pusher != nil {
		p.pusher.close()
		p.pusher.push()
	}
	if p.limiter == nil {
		return nil
	}
	broken := func() bool { return p.limiter.Stats().Breaker != breaker.Closed }
	before := broken()
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	err := p.limiter.Shutdown(ctx)
	if err != nil || before || broken() {
		p.w.giveUp(p.limiter.Stats().Lost, true)
	}
	return err
}
