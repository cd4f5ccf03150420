package hybrid

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/direct"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/explain"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/restore"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
)

// Limiter applies one limit of a hub. It is safe for concurrent use.
type Limiter struct {
	*family
	clock   *clock.Clock // the hub's; a copy of the pointer saves one load
	cfg     Config
	control *control.View // which limit, mode and switch is in force
	terms   keys.Terms    // what its keys share
	direct  direct.Asker  // messages for one call
	lines   waiting.Lines // of Wait
}

// family is the part of a limiter of rates that its classes share.
type family struct {
	*base
	own      bool // made by New: Close also closes the hub
	classes  classes.Set
	views    []*Limiter // one for each class; the first is the limiter itself
	bookings bookings
	restore  *restore.Asker // nil: no Config.Restore
	small    bool           // the log line about a C of 0 was written; of the heartbeat's goroutine
}

// shut is base.shut, and ends what waits for queues.
func (m *family) shut() {
	m.base.shut()
	m.restore.Close()
	m.bookings.close()
}

// each calls f for every entry of all classes, outside the locks of the shards.
func (m *family) each(f func(*keys.Entry)) {
	if m == nil { // the limiter counts calls in flight
		return
	}
	for _, v := range m.views {
		v.terms.Store.Each(f)
	}
}

var _ hybridlimit.Limiter = (*Limiter)(nil)

// New returns a limiter with a hub of its own, which Config.Hub configures. An unreachable Redis is not an error: the
// limiter starts in fallback, logs this, and uses Redis as soon as it answers. The caller closes the client, after
// the limiter.
func New(rdb redis.UniversalClient, limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	if err := errors.Join(runner.CheckClient(rdb),
		append(cfg.violations(limit), cfg.Hub.violations()...).Err("hybrid"), rated(limit)); err != nil {
		return nil, err
	}
	h, err := newHub(rdb, cfg.Hub, cfg.Name)
	if err != nil {
		return nil, err
	}
	l, err := h.Limiter(limit, cfg)
	if err != nil {
		h.Close()
		return nil, err
	}
	l.own = true
	return l, nil
}

// Close stops decisions at once and waits for all goroutines. It does not settle: units that are owed and not yet sent
// are lost, and counted. Leased units are not given back: Shutdown does that. A limiter made by New also closes its
// hub. The limiter's name becomes free. Close is idempotent.
func (l *Limiter) Close() error {
	l.shut()
	if l.own {
		return l.hub.Close()
	}
	for _, v := range l.views {
		v.terms.WriteOff()
	}
	l.hub.forget(l.base)
	return nil
}

// Shutdown sends the owed units to Redis, and then closes the limiter. A limiter made by New shuts down its hub.
// Shutdown stops waiting when ctx ends, or after 5 s if ctx has no deadline. Units that are not settled by then are
// lost, counted, and reported in the error.
func (l *Limiter) Shutdown(ctx context.Context) error {
	if l.own {
		return l.hub.Shutdown(ctx)
	}
	l.stop()
	err := l.hub.settle(ctx, l.base)
	return errors.Join(err, l.Close())
}

// Allow is AllowN with a cost of 1. The code is repeated rather than called, because it is the fast path: see
// keys.Terms.Common.
func (l *Limiter) Allow(ctx context.Context, key string) (res hybridlimit.Result, err error) {
	if e := l.terms.Store.Get(key); e != nil {
		if r := e.Plan.Load(); r.From != account.FromCall && l.terms.Common(e, r, 1, &res) {
			return res, nil
		}
	}
	return l.uncommon(ctx, key, 1)
}

// AllowN takes n units of key, all or none. It usually decides in memory. If this process's part of the limit is too
// small, AllowN waits for Redis, for at most Config.MaxWait. Only this wait observes ctx: when ctx ends first, nothing
// is charged and AllowN returns the error of ctx.
//
// An n above the burst is denied for ever. Remaining is then the estimate from memory. For a key that this process
// does not know, a message to Redis that takes nothing supplies Remaining.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res hybridlimit.Result, err error) {
	// A key in memory was checked when it was added.
	if e := l.terms.Store.Get(key); e != nil && n > 0 {
		if r := e.Plan.Load(); r.From != account.FromCall && l.terms.Common(e, r, n, &res) {
			return res, nil
		}
	}
	return l.uncommon(ctx, key, n)
}

// uncommon is AllowN off the fast path.
func (l *Limiter) uncommon(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.control.Check(key, n, l.maxKey); err != nil {
		return hybridlimit.Result{}, err
	}
	return l.slow(ctx, key, n, nil)
}

// slow decides when the fast path cannot: the key is not in memory, its budget has expired, or its units have run out.
func (l *Limiter) slow(ctx context.Context, key string, n int64, given *account.Plan) (hybridlimit.Result, error) {
	if res, ok := l.terms.DecidedAbove(key, n); ok {
		l.terms.Denied(key, nil, n, &res)
		return res, nil
	}
	if given != nil && l.control.Exactly(given) || given == nil && l.control.Exactly(l.control.Plan()) {
		return l.direct.Exact(ctx, key, n, given)
	}
	e, r, res, err := l.terms.LockBy(key, given, nil)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if e == nil {
		return l.direct.Exact(ctx, key, n, given)
	}
	if res, ok := keys.Static(r, res, n); ok {
		e.Unlock()
		return l.terms.Answer(key, r, res, n), nil
	}
	res.Limit = r.Shown
	if n > r.Most {
		return l.direct.AboveHere(ctx, e, r, key, given, n)
	}
	v, err := l.terms.Decide(ctx, e, r, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return l.terms.Answer(key, r, l.terms.Fill(res, r, v, n), n), nil
}

// sized logs once that the credit of a key is 0 units in a fleet of so many accounts.
func (l *Limiter) sized(accounts int64) {
	p := l.control.Plan()
	if l.small || !l.terms.GivesCredit() || account.Static(p.Limit) || l.terms.Credit(p, accounts) > 0 {
		return
	}
	l.small = true
	l.hub.log.Write(slog.LevelInfo, tell.MsgSmall, 0, []any{
		slog.String("limiter", l.cfg.Name), slog.String("limit", p.Limit.String()),
		slog.String("mode", l.Mode().String()), slog.Int64("fleet", accounts), slog.String("why", explain.NoCredit(&l.terms, p, accounts)),
	})
}

// Handle stands for one key, for callers that use the same key often. A decision skips the lookup, which is half of
// its cost. It decides as the limiter does, with any algorithm. It is safe for concurrent use.
type Handle struct {
	l   *Limiter
	key string
	e   atomic.Pointer[keys.Entry] // nil or evicted: the next call looks the entry up
}

// Handle returns a handle of key. Keeping it does not keep the key in memory: the key may be evicted, and comes back with
// the next call. Handle does not check the key: with an invalid key each call of the handle returns the error.
func (l *Limiter) Handle(key string) *Handle { return &Handle{l: l, key: strings.Clone(key)} }

// Allow is AllowN with a cost of 1. It is written out: see keys.Terms.Common.
func (k *Handle) Allow(ctx context.Context) (res hybridlimit.Result, err error) {
	if e := k.e.Load(); e != nil {
		if r := e.Plan.Load(); r.From != account.FromCall && k.l.terms.Common(e, r, 1, &res) {
			return res, nil
		}
	}
	return k.slow(ctx, 1)
}

// AllowN is Limiter.AllowN of the handle's key.
func (k *Handle) AllowN(ctx context.Context, n int64) (res hybridlimit.Result, err error) {
	if e := k.e.Load(); e != nil && n > 0 {
		if r := e.Plan.Load(); r.From != account.FromCall && k.l.terms.Common(e, r, n, &res) {
			return res, nil
		}
	}
	return k.slow(ctx, n)
}

// slow is AllowN, and stores the key's entry for the next call.
func (k *Handle) slow(ctx context.Context, n int64) (hybridlimit.Result, error) {
	res, err := k.l.AllowN(ctx, k.key, n)
	if e := k.l.terms.Store.Get(k.key); e != nil && e != k.e.Load() {
		k.e.Store(e)
	}
	return res, err
}

// slotTime returns the time in which a queue serves one unit; 0: the plan is of no queue.
func slotTime(p *account.Plan) time.Duration {
	if !p.Bucket.Queue {
		return 0
	}
	return time.Duration(p.Each())
}

// Invalidate makes the next call for key ask Config.LimitFor for its limit, in this process, without waiting for
// Config.LimitRefresh. Call it when a key gets another limit, for example with a message about a customer's new plan.
// The answer changes the limit as SetLimit does: used units stay used. Calls that have begun before may still be
// decided by the old limit. A key that is not in memory needs no Invalidate, and it is no error. Without
// Config.LimitFor nothing happens.
func (l *Limiter) Invalidate(key string) error {
	if err := l.control.Check(key, 1, l.maxKey); err != nil {
		return err
	}
	if !l.control.Keyed() {
		return nil
	}
	l.control.Questions.Voids.Add(1) // before the look: a key that comes into memory during it has seen the number
	for _, v := range l.views {
		if e := v.terms.Store.Peek(key); e != nil {
			e.Lock()
			e.Begin(l.hub.clock.Now()) // ends the budget
			e.Void()
			e.Unlock()
		}
	}
	return nil
}

// InvalidateAll is Invalidate for all keys, for example after LimitFor's source was loaded anew. It visits the keys in
// memory (BenchmarkInvalidateAll has the time). A key whose limit has not changed keeps its units.
func (l *Limiter) InvalidateAll() error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	if l.control.Keyed() {
		l.control.VoidLimits()
	}
	return nil
}

// Class is a class of calls of a limiter: see Config.Classes.
type Class = hybridlimit.Class

// ClassCritical is the name of the class with floor 0: the limiter itself, as New returns it.
const ClassCritical = hybridlimit.ClassCritical

// Class returns the view of a class that Config.Classes declares, or for ClassCritical the limiter itself. A call
// through a view is admitted only if it leaves the floor of the class. Result.Limit is the burst without it.
//
// A view is a Limiter with keys, counters and budgets of its own. It shares the state in Redis, the limits, the switch,
// the settings and the fallback with the limiter. To close one of them closes all. Views of one limiter join each other
// in AllowJoint. The error is ErrInvalid for any other name.
func (l *Limiter) Class(name string) (*Limiter, error) {
	place, err := l.classes.Find("hybrid", l.cfg.Name, name)
	if err != nil {
		return nil, err
	}
	return l.views[place], nil
}

// ForClass is Class for adapters, which take the name from a request. A name that is not declared gets the class with
// the largest floor: only a known name can be critical. A limiter without classes returns itself. It never fails.
func (l *Limiter) ForClass(name string) hybridlimit.Limiter { return l.views[l.classes.For(name)] }

var _ adapter.Classer = (*Limiter)(nil)

// settleSpread is the time over which a process that leaves SwitchLocalOnly spreads the syncs of its owed units.
const settleSpread = time.Second

// settleLater syncs the units that SwitchLocalOnly left owed, spread over a second, because a whole fleet switches
// back within one second.
func (m *family) settleLater() {
	now := time.Now()
	m.each(func(e *keys.Entry) {
		if _, open, _ := e.Unsettled(); open > 0 {
			m.hub.engine.Enqueue(e.Tag(), e, now.Add(rand.N(settleSpread)))
		}
	})
}
