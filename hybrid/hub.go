package hybrid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
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
// lost its state it has one more for a while. Close waits for all of them.
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
	permits  *membership
	metrics  *tell.Metrics
	gone     atomic.Bool   // the client of Redis was closed before the hub
	exacts   atomic.Uint64 // messages outside the engine, without those in beats
	failed   atomic.Uint64 // exacts without an answer
	syncs    tell.SyncTimes

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the heartbeat

	setting sync.Mutex // held by SetSettings, so that all limiters end with the settings of one call

	mu       sync.Mutex // guards the fields below
	closed   bool
	beating  bool // the heartbeat's goroutine has started
	waking   bool // there is or was a limiter of calls in flight: the waker's goroutine has started
	limiters map[string]*Limiter
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
		limiters: map[string]*Limiter{},
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
		Timeout: cfg.SyncTimeout, Breaker: h.breaker, Late: h.clock.Late, Begin: h.clock.Begin, End: h.clock.End,
		OnRefused: func(tag, ops int, err error) {
			h.log.Event("hybridlimit: Redis refused a batch of syncs and will never apply it; the units in it are lost and counted as dropped",
				slog.Int("tag", tag), slog.Int("ops", ops), slog.Any("error", err))
		},
		Watched:    h.watched,
		OnRefusing: h.refusing, OnRenamed: h.renamed, OnLoss: h.resync.OnLoss,
	})
	h.permits = newMembership(h)
	h.heart = member.NewHeart(h.process, gather, member.Env{
		Context: h.ctx, Clock: h.clock, Log: h.log, Names: h.names, Runner: h.runner, Engine: h.engine, Breaker: h.breaker, Clocks: &h.clocks,
		Timeout: cfg.SyncTimeout, Permits: h.permits, Limiters: h.parties, Beat: h.beat, Return: h.returnWanted, Suspect: h.resync.Suspect,
	})
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
			h.permits.lookAgain()
			h.log.Breaker(i, c, h.fellBack)
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
	h.clocks.Begin(len(h.breakers))
	return nil
}

// fellBack returns what the log says of a hub that falls back.
func (h *Hub) fellBack() tell.FellBack {
	f := tell.FellBack{Late: h.clock.Late(), SyncTimeout: h.cfg.SyncTimeout}
	for _, l := range h.all() {
		f.Limiters = append(f.Limiters, slog.Group(l.cfg.Name,
			slog.String("fallback", l.control.Fallback().String()), slog.Int64("fleet", l.party.Size())))
		if l.party.Beats() < 2 && l.party.Hint == 0 {
			f.Alone = l.cfg.Name
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
	return h.limiter(limit, cfg, nil)
}

// limiter adds a limiter. flight is the limiter of calls in flight that it carries; nil: it limits a rate. The
// arguments are valid.
func (h *Hub) limiter(limit hybridlimit.Limit, cfg Config, flight *ConcurrencyLimiter) (*Limiter, error) {
	cfg = cfg.withDefaults()
	release, err := claim(h.identity(cfg.Name), limit)
	if err != nil {
		return nil, err
	}
	shared := &family{
		hub: h, flight: flight, classes: classes.Of(cfg.Classes), release: release, done: make(chan struct{}), party: member.NewParty(cfg.Name, h.cfg.FleetSize, len(cfg.Classes)+1),
		bookings: newBookings(),
	}
	shares, overflow := fallback.New(cfg.MaxKeys), sometimes.Every(overflowQuiet)
	for _, view := range control.New(limit, control.Config{
		Name: cfg.Name, InFlight: flight != nil, Mode: account.Mode(cfg.Mode), Fallback: fallback.Policy(cfg.Fallback),
		FallbackFloor: cfg.FallbackFloor, Shadow: cfg.Shadow, LimitFor: cfg.LimitFor, Names: h.names, Clock: h.clock, Log: h.log,
	}, shared.classes, shared.hooks(cfg.Name)) {
		v := &Limiter{family: shared, clock: h.clock, cfg: cfg, control: view, denials: tell.NewDenials(cfg.LogDenials)}
		v.terms = keys.Terms{
			Config: keys.Config{
				Overshoot: cfg.Overshoot, SyncEvery: cfg.SyncEvery, SyncInterval: cfg.SyncInterval, MaxWait: cfg.MaxWait,
				FallbackFloor: cfg.FallbackFloor, Subject: cfg.Subject,
			},
			Name: cfg.Name, Clock: h.clock, Control: view, Store: keys.NewStore(cfg.MaxKeys, h.clock.Void), Log: h.log,
			Hist: h.metrics.Histograms(v.attributes()...), Engine: h.engine, Names: h.names, Clocks: &h.clocks, Pace: &h.heart.Pace,
			Fleet: &shared.party.Census, Shares: shares, Overflow: overflow, Broken: h.broken,
			Lost:  h.resync.LostAt,
			Wants: h.heart.Wanted.Tell,
		}
		v.terms.Count.Born = h.clock.Now()
		shared.views = append(shared.views, v)
	}
	l := shared.views[0]
	l.party.Control, l.party.Sized = l.control, l.sized
	note := func() {}
	defer func() { note() }() // without h.mu
	l.control.Questions.Every = cfg.LimitRefresh
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		release()
		return nil, hybridlimit.ErrClosed
	case h.limiters[cfg.Name] != nil:
		release()
		var bad hybridlimit.Violations
		bad.Add("Config.Name", cfg.Name,
			"is taken by another limiter of this hub; share the limiter that Hub.Limiter has returned, or close it first")
		return nil, bad.Err("hybrid")
	}
	if s, ok := h.settings[cfg.Name]; ok {
		if err := l.control.Misfits(s.control()).Err("hybrid"); err != nil {
			release()
			return nil, err
		}
		note = l.control.Adopt(s.control())
	}
	if flight != nil {
		flight.base = l // before another goroutine can see it
		if !h.waking {
			h.waking = true
			h.wg.Add(1)
			go h.permits.run()
		}
	}
	h.limiters[cfg.Name] = l
	h.heart.Join()
	if !h.beating {
		h.beating = true
		h.wg.Add(1)
		go func() {
			defer h.wg.Done()
			h.heart.Run()
		}()
	}
	return l, nil
}

// hooks returns what follows from a change of the control.
func (m *family) hooks(name string) control.Hooks {
	h := m.hub
	hooks := control.Hooks{
		Claim:    func(limit hybridlimit.Limit) error { return reclaim(h.identity(name), limit) },
		VoidKeys: func() { m.each((*keys.Entry).VoidLocked) },
		Resumed:  m.settleLater, Relimited: func() {}, Switched: func() {},
	}
	if m.flight != nil {
		hooks.Relimited, hooks.Switched = h.permits.changed, h.permits.lookAgain
	}
	return hooks
}

// forget removes a closed limiter, so that its name is free.
func (h *Hub) forget(l *Limiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if own := h.limiters[l.cfg.Name]; !h.closed && own != nil && own.family == l.family {
		delete(h.limiters, l.cfg.Name)
		for _, v := range l.views {
			h.decided += v.decisions()
		}
	}
}

// takeBack takes back the budgets of all keys. A budget that no call has used for half of the range of epochs would
// become valid again. The heartbeat lets the clock call takeBack once per quarter of the range, which is eight months
// of ticks.
func (h *Hub) takeBack() {
	for _, v := range h.views() {
		v.drain()
	}
}

// concurrent reports whether the hub has, or had, a limiter of calls in flight.
func (h *Hub) concurrent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waking
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

// all returns the open limiters, and those of calls in flight that are closed while calls run, in no order.
func (h *Hub) all() []*Limiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*Limiter, 0, len(h.limiters))
	for _, l := range h.limiters {
		out = append(out, l)
	}
	return out
}

// parties returns the limiters of the hub as the heartbeats count them, sorted by name.
func (h *Hub) parties() []*member.Party {
	var out []*member.Party
	for _, l := range h.named() {
		out = append(out, l.party)
	}
	return out
}

// beat is called once a second by the heartbeat's goroutine.
func (h *Hub) beat() {
	for _, l := range h.all() {
		l.terms.Shares.Release(h.clock.Now())
		l.control.Beat()
		for _, v := range l.views {
			v.beatDenials()
		}
		if l.flight != nil {
			l.flight.sayFloor()
		}
	}
}

// returnWanted makes the keys with these marks return units that this process does not use. It looks at each key of a
// window that holds units: 100 000 keys take some ms.
func (h *Hub) returnWanted(marks map[string]bool) {
	if len(marks) == 0 {
		return
	}
	for _, l := range h.views() {
		l.terms.Store.Sweep(func(e *keys.Entry) {
			if e.Plan.Load().Window.Period > 0 && e.Holds() && marks[h.names.Digest(l.cfg.Name, e.Name)] {
				e.WantedElsewhere()
			}
		})
	}
}

// each calls f for every key of all limiters, outside the locks of the shards.
func (h *Hub) each(f func(*keys.Entry)) {
	for _, l := range h.all() {
		l.each(f)
	}
}

// views returns the views of the open limiters, one for each class, in no order.
func (h *Hub) views() []*Limiter {
	var out []*Limiter
	for _, l := range h.all() {
		out = append(out, l.views...)
	}
	return out
}

// Limiters returns the open limiters of rates of the hub, sorted by name, each once and not by class.
func (h *Hub) Limiters() []*Limiter {
	return slices.DeleteFunc(h.named(), func(l *Limiter) bool { return l.flight != nil })
}

// ConcurrencyLimiters returns the open limiters of calls in flight of the hub, sorted by name.
func (h *Hub) ConcurrencyLimiters() []*ConcurrencyLimiter {
	var out []*ConcurrencyLimiter
	for _, l := range h.named() {
		if l.flight != nil && !l.control.Closed.Load() {
			out = append(out, l.flight)
		}
	}
	return out
}

// named returns all limiters, sorted by name.
func (h *Hub) named() []*Limiter {
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

var _ ratesync.Caller = (*runner.Runner)(nil)
