package hybrid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/direct"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/inflight"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/leased"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// Hub is the connection of one process to one fleet. Many limits share its sync
// engine, so that their keys share messages. It is safe for concurrent use.
//
// Make one Hub for the program, share it, and make each limiter once by Hub.Limiter. A second hub, or a limiter of New
// beside it, counts as one more process of the fleet: its limiters of the same names get a share of their own.
//
// A hub with limiters has one goroutine for the heartbeat, and one for its syncs while there are any; on a cluster one
// for each busy tag (see HubConfig.Tags). With many calls, or a slow Redis, it has two for its clock. After Redis has
// lost its state it has one more for a while, and so it has while it looks for a part of a split key. Close waits for
// all of them.
type Hub struct {
	cfg      HubConfig
	names    lua.Names
	process  string // 128 random bits: a restarted process has a new identity
	client   redis.UniversalClient
	runner   *runner.Runner
	caller   ratesync.Caller // the runner, traced and timed
	engine   *ratesync.Engine
	breakers []*circuit.Breaker // one, or one per tag
	clocks   member.Clocks      // one per breaker
	clock    *clock.Clock
	log      *tell.Log
	resync   *keys.Resync
	heart    *member.Heart
	permits  *inflight.Members
	leases   *leased.Rates
	queueing member.Queueing
	looking  atomic.Bool // a goroutine looks for parts of split keys
	metrics  *tell.Metrics
	gone     atomic.Bool // the client of Redis was closed before the hub
	direct   direct.Env
	syncs    tell.SyncTimes

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the heartbeat

	setting sync.Mutex // held by SetSettings, so that all limiters end with the settings of one call

	mu       sync.Mutex // guards the fields below
	closed   bool
	beating  bool // the heartbeat's goroutine has started
	limiters map[string]*base
	settings map[string]Settings // by the name of the limiter
	decided  int64               // decisions of limiters that were closed before the hub
}

// NewHub makes a hub. It does not connect, so an unreachable Redis is not an error. The caller closes the client, after
// the hub. Give the hub its own client if its traffic should not share a pool.
//
// NewHub adds two permanent hooks to a client of go-redis. One guards the connections that the client dials from now
// on: this hub's commands never receive a reply that is longer than Redis can give. The other records why a dial
// failed, so that the cause of an outage is named ("connection refused"). Other commands on the same client are
// answered as before.
func NewHub(rdb redis.UniversalClient, cfg HubConfig) (*Hub, error) { return newHub(rdb, cfg, "") }

// newHub is NewHub. If only is not empty, the hub is for the one limiter of that name.
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
		limiters: map[string]*base{},
	}
	h.clock = clock.New(h.takeBack)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.log = tell.NewLog(cfg.Logger.With(slog.String("prefix", cfg.Prefix)))
	if err := h.makeBreakers(); err != nil {
		return nil, err
	}
	if h.metrics, err = tell.NewMetrics(cfg.MeterProvider, cfg.Name); err != nil {
		return nil, fmt.Errorf("hybrid: HubConfig.MeterProvider: %w", err)
	}
	h.caller = tell.Traced(tell.Timed{Next: calls, Times: &h.syncs, Metrics: h.metrics, Gone: &h.gone}, rdb, cfg.Functions, cfg.TracerProvider)
	h.resync = keys.NewResync(keys.ResyncEnv{
		Context: h.ctx, Clock: h.clock, Log: h.log, Servers: len(h.breakers), Server: h.server, Broken: h.broken,
		Fleet: func() int64 { return member.Size(h.parties()) }, Each: h.each,
		Enqueue: func(e *keys.Entry, due time.Time) { h.engine.Enqueue(e.Tag(), e, due) },
	})
	gather := keys.Tick
	if only != "" {
		gather = 0 // no other limiter comes
	}
	h.engine = ratesync.New(ratesync.Config{
		Caller: h.caller, Names: h.names, Lanes: len(h.breakers), Process: h.process,
		Timeout: cfg.SyncTimeout, Queueing: h.queueing.Of, Breaker: h.breaker, Late: h.clock.Late, Begin: h.clock.Begin, End: h.clock.End,
		OnRefused: func(tag, ops int, err error) {
			h.log.Event("hybridlimit: Redis refused a batch of syncs and will never apply it; the units in it are lost and counted as dropped",
				slog.Int("tag", tag), slog.Int("ops", ops), slog.Any("error", err))
		},
		Watched:    h.watched,
		OnRefusing: h.refusing, OnRenamed: h.renamed, OnLoss: h.resync.OnLoss,
	})
	h.permits = inflight.NewMembers(h.process, inflight.Env{
		Context: h.ctx, Clock: h.clock, Log: h.log, Names: h.names, Runner: h.runner, Engine: h.engine,
		Breaker: h.breaker, Broken: h.broken, Away: func() bool { return h.worst() != breaker.Closed },
		Event: func() { h.heart.Pace.Event(0) }, Renamed: h.renamed, Begin: h.begin, End: h.wg.Done, Limiters: h.inFlight,
	})
	h.leases = leased.New(leased.Env{
		Context: h.ctx, Clock: h.clock, Log: h.log, Names: h.names, Runner: h.runner, Engine: h.engine, Breaker: h.breaker, Broken: h.broken,
		Event: func() { h.heart.Pace.Event(0) }, Begin: h.begin, End: h.wg.Done, Name: newIdentity,
	})
	h.heart = member.NewHeart(h.process, gather, member.Env{
		Context: h.ctx, Clock: h.clock, Log: h.log, Names: h.names, Runner: h.runner, Engine: h.engine, Breaker: h.breaker, Clocks: &h.clocks,
		Timeout: cfg.SyncTimeout, Permits: h.permits, Limiters: h.parties, Beat: h.beat, Sized: h.sized, Return: h.returnWanted, Suspect: h.resync.Suspect,
	})
	h.direct.Caller, h.direct.Runner, h.direct.Engine, h.direct.Breaker = h.caller, h.runner, h.engine, h.breaker
	h.direct.Timeout, h.direct.Trip = cfg.SyncTimeout, &h.heart.Trip
	if err := h.metrics.Register(h.observe); err != nil {
		h.metrics.Release()
		return nil, fmt.Errorf("hybrid: HubConfig.MeterProvider: %w", err)
	}
	return h, nil
}

// makeBreakers makes one breaker per tag if tags may be on different servers. Otherwise it makes one: a single Redis is
// up or down as a whole.
func (h *Hub) makeBreakers() error {
	count := h.cfg.Tags
	if h.runner.Together() {
		count = 1
	}
	cfg := h.cfg.Breaker
	users := cfg.OnChange
	for i := range count {
		cfg.OnChange = func(c breaker.Change) {
			h.clock.Void() // budgets may hold credit, which depends on Redis
			h.permits.LookAgain()
			if c.To == breaker.Open {
				h.queueing.Opened()
				h.patient()
			}
			h.log.Breaker(i, c, h.fellBack)
			if users != nil {
				users(c)
			}
		}
		b, err := circuit.New(cfg)
		if err != nil {
			return err
		}
		b.Queueing(func() time.Duration { return h.engine.Queueing() })
		h.breakers = append(h.breakers, b)
	}
	h.clocks.Begin(len(h.breakers))
	return nil
}

// fellBack returns what the log says of a hub that falls back.
func (h *Hub) fellBack() tell.FellBack {
	f := tell.FellBack{Late: h.clock.Late(), SyncTimeout: h.cfg.SyncTimeout}
	for _, l := range h.all() {
		f.Limiters = append(f.Limiters, l.fellBack())
		if l.party.Beats() < 2 && l.party.Hint == 0 {
			f.Alone = l.name
		}
	}
	return f
}

// watched reports whether heartbeats show within a second and a half that the server of a tag has lost its data. In a
// cluster they are on one of several servers, so they say nothing about the others.
func (h *Hub) watched(int) bool { return len(h.breakers) == 1 && h.heart.Watches() }

func (h *Hub) breaker(tag int) *circuit.Breaker { return h.breakers[h.server(tag)] }

// server returns the index of the server of a tag, as far as the hub tells servers apart: 0 for a single Redis.
func (h *Hub) server(tag int) int { return tag % len(h.breakers) }

// Limiter adds a limiter to the hub and counts it in the hub's heartbeat. It fails if an open limiter of the hub has
// the same name. It also fails if an open limiter anywhere in this program has the same client, prefix and name, but
// another limit. A limit of AlgConcurrent is ErrUnsupported: it is for Concurrency.
func (h *Hub) Limiter(limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	if err := errors.Join(cfg.violations(limit).Err("hybrid"), rated(limit)); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m := &family{classes: classes.Of(cfg.Classes), bookings: newBookings()}
	var err error
	var views []*control.View
	m.base, views, err = h.prepare(limit, control.Config{
		Name: cfg.Name, Mode: account.Mode(cfg.Mode), Fallback: fallback.Kind(cfg.Fallback), FallbackFloor: cfg.FallbackFloor,
		Shadow: cfg.Shadow, LimitFor: cfg.LimitFor,
	}, m.classes, control.Hooks{
		VoidKeys: func() { m.each((*keys.Entry).VoidLocked) }, Resumed: m.settleLater, Relimited: func() {}, Switched: func() {},
	})
	if err != nil {
		return nil, err
	}
	shares, overflow := fallback.New(cfg.MaxKeys), sometimes.Every(keys.OverflowQuiet)
	var penalties *keys.Penalties
	if p := cfg.Penalty; p.After > 0 {
		penalties = keys.NewPenalties(p.After, p.Within, p.For)
	}
	restorer := m.restorer(cfg)
	for _, view := range views {
		v := &Limiter{family: m, clock: h.clock, cfg: cfg, control: view}
		v.terms = keys.Terms{
			Config: keys.Config{
				Overshoot: cfg.Overshoot, SyncEvery: cfg.SyncEvery, SyncInterval: cfg.SyncInterval, MaxWait: cfg.MaxWait,
				MaxLife: int64(cfg.MaxLease / time.Second), FallbackFloor: cfg.FallbackFloor, LogDenials: cfg.LogDenials, TagBy: cfg.TagBy,
			},
			Name: cfg.Name, Clock: h.clock, Control: view, Denials: tell.NewDenials(cfg.LogDenials), Store: keys.NewStore(cfg.MaxKeys, h.clock.Void), Log: h.log,
			Hist: h.metrics.Histograms(attributes(v)...), Engine: h.engine, Names: h.names, Clocks: &h.clocks, Pace: &h.heart.Pace, Paused: &h.heart.Paused,
			Fleet: &m.party.Census, Penalties: penalties, Restore: restorer, Shares: shares, Overflow: overflow, Done: m.done, Broken: h.broken, Lost: h.resync.LostAt, Wants: h.heart.Wanted.Tell,
		}
		v.direct = direct.New(&h.direct, &v.terms)
		v.terms.Count.Born = h.clock.Now()
		m.views = append(m.views, v)
	}
	m.rates, m.maxKey = m, cfg.MaxKeyBytes
	m.party.Sized = m.views[0].sized
	m.splits(cfg)
	m.control.Questions.Every = cfg.LimitRefresh
	if err := h.enter(m.base); err != nil {
		return nil, err
	}
	return m.views[0], nil
}

// prepare makes what all limiters have. It claims the identity until base.release. The limiter is not in the hub yet.
func (h *Hub) prepare(limit hybridlimit.Limit, cfg control.Config, of classes.Set, hooks control.Hooks) (*base, []*control.View, error) {
	release, err := claim(h.identity(cfg.Name), limit)
	if err != nil {
		return nil, nil, err
	}
	cfg.Names, cfg.Clock, cfg.Log = h.names, h.clock, h.log
	hooks.Claim = func(limit hybridlimit.Limit) error { return reclaim(h.identity(cfg.Name), limit) }
	views := control.New(limit, cfg, of, hooks)
	b := &base{
		hub: h, name: cfg.Name, control: views[0], party: member.NewParty(cfg.Name, h.cfg.FleetSize, len(of)),
		done: make(chan struct{}), release: release,
	}
	b.party.Control = b.control
	return b, views, nil
}

// enter adds a prepared limiter to the hub, and counts it in the heartbeat.
func (h *Hub) enter(b *base) (err error) {
	note := func() {}
	defer func() {
		if note(); err != nil { // without h.mu
			b.release()
		}
	}()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return hybridlimit.ErrClosed
	case h.limiters[b.name] != nil:
		var bad adapter.Violations
		bad.Add("Config.Name", b.name,
			"is taken by another limiter of this hub; share the limiter that Hub.Limiter has returned, or close it first")
		return bad.Err("hybrid")
	}
	if s, ok := h.settings[b.name]; ok {
		if err := b.control.Misfits(s.control()).Err("hybrid"); err != nil {
			return err
		}
		note = b.control.Adopt(s.control())
	}
	if b.calls != nil && h.permits.Wake() {
		h.wg.Add(1)
		go h.permits.Run()
	}
	h.limiters[b.name] = b
	h.heart.Join()
	if !h.beating {
		h.beating = true
		h.wg.Add(1)
		go func() {
			defer h.wg.Done()
			h.heart.Run()
		}()
	}
	return nil
}

// forget removes a closed limiter, so that its name is free.
func (h *Hub) forget(b *base) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed && h.limiters[b.name] == b {
		delete(h.limiters, b.name)
		h.decided += b.decisions()
	}
}

// takeBack takes back the budgets of all keys. A budget that no call has used for half of the range of epochs would
// become valid again. The heartbeat lets the clock call takeBack once per quarter of the range, which is eight months
// of ticks.
func (h *Hub) takeBack() {
	for _, v := range h.views() {
		v.terms.Drain()
	}
}

// begin counts a goroutine, and reports false if the hub is closed.
func (h *Hub) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Add(1)
	return true
}

// all returns the open limiters, and those of calls in flight that are closed while calls run, sorted by name.
func (h *Hub) all() []*base {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.limiters), func(a, b *base) int { return strings.Compare(a.name, b.name) })
}

// parties returns the limiters of the hub as the heartbeats count them, sorted by name.
func (h *Hub) parties() []*member.Party {
	var out []*member.Party
	for _, l := range h.all() {
		out = append(out, l.party)
	}
	return out
}

// beat is called once a second by the heartbeat's goroutine.
func (h *Hub) beat() {
	for _, l := range h.all() {
		l.control.Beat()
		if l.calls != nil {
			l.calls.in.Beat()
			continue
		}
		if l.leased != nil {
			l.leased.in.Shares.Release(h.clock.Now())
			l.leased.in.Beat()
			continue
		}
		l.rates.views[0].terms.Shares.Release(h.clock.Now())
		for _, v := range l.rates.views {
			v.terms.BeatDenials()
		}
	}
	h.lookForParts()
}

// sized follows the size of the fleet.
func (h *Hub) sized() {
	h.queueing.Sized(h.parties())
	h.patient()
}

// patient lets connections wait as long as the engine.
func (h *Hub) patient() { h.runner.SetTimeout(h.engine.Timeout()) }

// returnWanted makes the keys with these marks return units that this process does not use. It looks at each key of a
// window that holds units: 100 000 keys take some ms.
func (h *Hub) returnWanted(marks map[string]bool) {
	if len(marks) == 0 {
		return
	}
	for _, l := range h.views() {
		l.terms.Store.Sweep(func(e *keys.Entry) {
			if e.Plan.Load().Window.Period > 0 && e.Holds() && marks[e.Mark()] {
				e.WantedElsewhere()
			}
		})
	}
}

// each calls f for every key of all limiters of rates, outside the locks of the shards.
func (h *Hub) each(f func(*keys.Entry)) {
	for _, v := range h.views() {
		v.terms.Store.Each(f)
	}
}

// views returns the views of the open limiters of rates, one for each class.
func (h *Hub) views() []*Limiter {
	var out []*Limiter
	for _, l := range h.all() {
		if l.rates != nil {
			out = append(out, l.rates.views...)
		}
	}
	return out
}

// inFlight returns the limiters of calls in flight, also closed ones with running calls.
func (h *Hub) inFlight() []*inflight.Limiter {
	var out []*inflight.Limiter
	for _, l := range h.all() {
		if l.calls != nil {
			out = append(out, l.calls.in)
		}
	}
	return out
}

// Limiters returns the open limiters of rates of the hub, sorted by name, each once and not by class.
func (h *Hub) Limiters() []*Limiter {
	var out []*Limiter
	for _, l := range h.all() {
		if l.rates != nil {
			out = append(out, l.rates.views[0])
		}
	}
	return out
}

// ConcurrencyLimiters returns the open limiters of calls in flight of the hub, sorted by name.
func (h *Hub) ConcurrencyLimiters() []*ConcurrencyLimiter {
	var out []*ConcurrencyLimiter
	for _, l := range h.all() {
		if l.calls != nil && !l.control.Closed.Load() {
			out = append(out, l.calls)
		}
	}
	return out
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

var _ ratesync.Caller = (*runner.Runner)(nil)
