package hybrid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// Hub is one process's connection to one fleet: many limits share its sync
// engine, so that their keys share messages. It is safe for concurrent use.
//
// Goroutines: one heartbeat per limiter; one ticker and one per busy slot
// while there is traffic; one for a while after Redis has lost its state.
// Close joins them all.
type Hub struct {
	cfg      HubConfig
	names    lua.Names
	process  string                 // 128 random bits: a restarted process is another one
	beatsAs  atomic.Pointer[string] // the heartbeats' identity: see renamed
	client   redis.UniversalClient
	runner   *runner.Runner
	caller   ratesync.Caller // the runner, traced and timed
	engine   *ratesync.Engine
	breakers []*circuit.Breaker // one, or one per tag
	clocks   redisClocks        // as many
	clock    *clock.Clock
	log      *stateLog
	resync   *resync
	metrics  *metrics
	exacts   atomic.Uint64 // messages besides the engine's, as are
	beats    atomic.Uint64 // heartbeats
	failed   atomic.Uint64 // of exacts: without an answer
	syncs    syncTimes

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // heartbeats

	mu       sync.Mutex // guards what follows
	closed   bool
	limiters map[string]*Limiter
	decided  int64 // decisions of limiters that were forgotten
}

// NewHub makes a hub. It does not connect: a Redis that cannot be reached is
// not an error. The client stays the caller's to close, after the hub; give
// the hub a client of its own where its traffic should not share a pool.
//
// NewHub adds two hooks to a client of go-redis, which stay. One guards the
// connections that the client dials from now on: to this hub's commands they
// pass on no reply that is longer than Redis can give. The other notes why a
// dial failed, so that the cause of an outage is named ("connection refused").
// Commands of others on the same client are answered as before.
func NewHub(rdb redis.UniversalClient, cfg HubConfig) (*Hub, error) { return newHub(rdb, cfg, "") }

// newHub is NewHub, for one limiter only where that is named.
func newHub(rdb redis.UniversalClient, cfg HubConfig, only string) (*Hub, error) {
	if err := errors.Join(runner.CheckClient(rdb), cfg.violations().Err("hybrid")); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	switch {
	case cfg.Name != "":
	case only == "":
		cfg.Name = cfg.Prefix
	default:
		cfg.Name = cfg.Prefix + "/" + only
	}
	calls, err := runner.New(rdb, cfg.SyncTimeout, runner.WithFunctions(cfg.Functions), runner.WithLogger(cfg.Logger))
	if err != nil {
		return nil, err
	}
	h := &Hub{
		cfg: cfg, names: lua.Names{Prefix: cfg.Prefix, Tags: cfg.Tags, HashKeys: cfg.HashKeys},
		process: newIdentity(), client: rdb, runner: calls,
		limiters: map[string]*Limiter{},
	}
	h.beatsAs.Store(&h.process)
	h.clock = clock.New(h.takeBack)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.log = newStateLog(cfg.Logger.With(slog.String("prefix", cfg.Prefix)))
	if err := h.makeBreakers(); err != nil {
		return nil, err
	}
	if h.metrics, err = newMetrics(cfg.MeterProvider, cfg.Name); err != nil {
		return nil, fmt.Errorf("hybrid: HubConfig.MeterProvider: %w", err)
	}
	h.caller = newTraced(timed{calls, h}, rdb, cfg)
	h.resync = newResync(h)
	h.engine = ratesync.New(ratesync.Config{
		Caller: h.caller, Names: h.names, Process: h.process,
		Timeout: cfg.SyncTimeout, InFlight: h.inFlight(), Breaker: h.breaker, Late: h.clock.Late,
		OnRefused: func(tag, ops int, err error) {
			h.log.event("hybridlimit: Redis refused a sync for good; what it carried is lost",
				slog.Int("tag", tag), slog.Int("ops", ops), slog.Any("error", err))
		},
		OnRefusing: h.refusing, OnRenamed: h.renamed, OnLoss: h.resync.onLoss,
	})
	if err := h.metrics.register(h); err != nil {
		h.metrics.release()
		return nil, fmt.Errorf("hybrid: HubConfig.MeterProvider: %w", err)
	}
	return h, nil
}

// makeBreakers makes one breaker per tag where tags may live on different
// servers, else one: a single Redis is up or down as a whole.
func (h *Hub) makeBreakers() error {
	count := 1
	switch h.client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		count = h.cfg.Tags
	}
	cfg := h.cfg.Breaker
	users := cfg.OnChange
	for i := range count {
		cfg.OnChange = func(c breaker.Change) {
			h.clock.Void() // what credit is in words is not to be had without Redis
			h.log.breaker(i, c, h)
			if users != nil {
				users(c)
			}
		}
		b, err := circuit.New(cfg)
		if err != nil {
			return err
		}
		h.breakers = append(h.breakers, b)
	}
	h.clocks.of = make([]redisClock, len(h.breakers))
	return nil
}

// inFlight bounds the syncs of a process that wait for each other in one Redis:
// four full batches keep it busy over a round trip of some ms, and when it
// hangs they are as many time-outs at once as open the breaker. In a cluster
// a bound over all tags would have those of a node that is down hold up the
// others. See docs/decisions/0018-ops-in-flight.md.
func (h *Hub) inFlight() int {
	if len(h.breakers) > 1 {
		return 0
	}
	return 4 * wire.MaxOps
}

func (h *Hub) breaker(tag int) *circuit.Breaker {
	if len(h.breakers) == 1 {
		return h.breakers[0]
	}
	return h.breakers[tag]
}

// jitter is a random time in [½, 1½) of d.
func (h *Hub) jitter(d int64) int64 { return d/2 + mrand.Int64N(d) }

// Limiter adds a limit to the hub and starts its heartbeat. A second limiter
// of one name is refused; so is, anywhere in this program, one with the same
// client, prefix and name but another limit.
func (h *Hub) Limiter(limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	if err := cfg.violations(limit).Err("hybrid"); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	release, err := claim(identity{h.client, h.cfg.Prefix, cfg.Name}, limit)
	if err != nil {
		return nil, err
	}
	l := &Limiter{
		hub: h, clock: h.clock, cfg: cfg, store: newStore(cfg.MaxKeys, h.clock.Void), release: release,
		done: make(chan struct{}), stopBeat: make(chan struct{}), beaten: make(chan struct{}), ready: make(chan struct{}),
	}
	l.plan.Store(account.NewPlan(limit))
	l.switches.shadow.Store(cfg.Shadow)
	l.ctx, l.cancel = context.WithCancel(h.ctx)
	l.hist = h.metrics.histograms(cfg.Name)
	l.fleet.Hint = int64(h.cfg.FleetSize)
	l.count.born = h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		l.cancel()
		release()
		return nil, hybridlimit.ErrClosed
	case h.limiters[cfg.Name] != nil:
		l.cancel()
		release()
		var bad hybridlimit.Violations
		bad.Add("Config.Name", cfg.Name, "is taken by another limiter of this hub")
		return nil, bad.Err("hybrid")
	}
	h.limiters[cfg.Name] = l
	h.wg.Add(1)
	go l.beat()
	return l, nil
}

// forget lets go of a closed limiter, so that its name is free.
func (h *Hub) forget(l *Limiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed && h.limiters[l.cfg.Name] == l {
		delete(h.limiters, l.cfg.Name)
		h.decided += l.decisions()
	}
}

// takeBack takes the words of all keys back. A word that nobody looked at for
// half of the epochs would come to be good again: once in a quarter of them is
// often enough, which is eight months of ticks.
func (h *Hub) takeBack() {
	for _, l := range h.all() {
		l.drain()
	}
}

// all is the limiters at this moment.
func (h *Hub) all() []*Limiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*Limiter, 0, len(h.limiters))
	for _, l := range h.limiters {
		out = append(out, l)
	}
	return out
}

// Limiters is the limiters of the hub that are open, by their names' order.
func (h *Hub) Limiters() []*Limiter {
	all := h.all()
	slices.SortFunc(all, func(a, b *Limiter) int { return strings.Compare(a.cfg.Name, b.cfg.Name) })
	return all
}

// Ready waits until every limiter is ready: see Limiter.Ready.
func (h *Hub) Ready(ctx context.Context) error {
	for _, l := range h.all() {
		if err := l.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown stops decisions, settles what is owed, leaves the fleet, and
// closes. When ctx ends first, or 5 s have passed and ctx has no deadline, what
// could not be paid is lost, counted, and reported in the error.
func (h *Hub) Shutdown(ctx context.Context) error {
	for _, l := range h.all() {
		l.stop()
	}
	err := h.settle(ctx, h.all()...)
	return errors.Join(err, h.Close())
}

// settleWithin bounds a Shutdown whose ctx has no deadline: a program must be
// able to end while Redis is down.
const settleWithin = 5 * time.Second

// settle pays what limiters owe and takes them out of the fleet. They make no
// more decisions, so what they owe only falls.
func (h *Hub) settle(ctx context.Context, limiters ...*Limiter) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleWithin)
		defer cancel()
	}
	var owing []*entry
	for _, l := range limiters {
		l.store.each(func(e *entry) { owing = append(owing, e) })
	}
	owing, err := payAll(ctx, owing)
	if err == nil {
		for _, l := range limiters {
			l.leave()
		}
		return nil
	}
	var owed int64
	for _, e := range owing {
		_, units, _ := e.unsettled()
		owed += units
	}
	if owed == 0 { // only a sync that pays nothing was waited for
		return nil
	}
	return fmt.Errorf("hybrid: shutdown left %d units unpaid: %w", owed, err)
}

// payAll syncs entries until none owes anything, and returns those that still
// do when ctx ends. A sync that is out and pays nothing is waited for too, or
// what it brings would be in nobody's books; not without Redis, though, when
// there is nothing to lose. It looks again every tick: the lanes they share
// with other limiters need never be idle.
func payAll(ctx context.Context, entries []*entry) (owing []*entry, err error) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		owing = entries[:0]
		for _, e := range entries {
			switch _, open, onItsWay := e.unsettled(); {
			case open > 0:
				e.sync(account.SyncNow)
				owing = append(owing, e)
			case onItsWay && !e.lim.alone(e.tag()):
				owing = append(owing, e)
			}
		}
		if len(owing) == 0 {
			return nil, nil
		}
		entries = owing
		select {
		case <-t.C:
		case <-ctx.Done():
			return owing, ctx.Err()
		}
	}
}

// Close stops decisions at once, settles nothing, and waits for every
// goroutine. What is owed and not yet sent is lost and counted. It is
// idempotent.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	limiters := h.all()
	for _, l := range limiters {
		l.shut()
	}
	h.cancel()
	h.wg.Wait()
	h.resync.close()
	h.engine.Close()
	h.runner.Close()
	h.clock.Close()
	for _, l := range limiters {
		l.writeOff()
	}
	return h.metrics.close()
}

// writeOff counts what a closed limiter owed, held and denied. What is on its way may
// still arrive: Settle or Drop will know.
func (l *Limiter) writeOff() {
	now := l.hub.clock.Now()
	l.store.each(func(e *entry) {
		e.lock()
		defer e.unlock()
		if e.dead {
			return
		}
		e.begin(now)
		e.die()
		l.count.book(e.account.Forget())
	})
	l.endDenials()
}

// unsettled is the units admitted that Redis has not acknowledged, less those
// given back, what of both is open, and whether a sync is on its way.
func (e *entry) unsettled() (owed, open int64, onItsWay bool) {
	e.lock()
	defer e.unlock()
	e.begin(e.lim.hub.clock.Now())
	return e.account.Owed(), e.account.Open(), e.account.OnItsWay()
}

var _ ratesync.Caller = (*runner.Runner)(nil)
