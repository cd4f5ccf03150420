package local

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/shards"
)

// Limiter is one limit for many keys, in this process only. Make one with New. It is safe for concurrent use.
//
// Only Wait checks whether ctx has ended. The other methods wait only for locks that are held for a memory operation. A
// log reads the request id from ctx.
type Limiter struct {
	*core

	store                      // the views of a limiter have copies of this
	clock func() time.Duration // nil: that of the process
	order uint64               // position among all limiters: AllowJoint takes locks in this order
	class classes.Class
}

// core is the part of a limiter that changes, which its classes share.
type core struct {
	limits

	classes classes.Set
	views   []*Limiter // one for each class; the first is the limiter itself

	changing sync.Mutex // held by SetLimit, so that all shards end with the same limit
	closing  sync.Once
	closed   chan struct{}
}

var (
	_ hybridlimit.Limiter = (*Limiter)(nil)
	_ adapter.Classer     = (*Limiter)(nil)
	_ adapter.Joint       = (*Limiter)(nil)
	_ adapter.Describer   = (*Limiter)(nil)
)

// made counts limiters: see Limiter.order.
var made atomic.Uint64

// New makes a limiter for any algorithm. It starts no goroutine.
//
// The error is a *hybridlimit.InvalidError with all violations of limit and cfg, or wraps hybridlimit.ErrUnsupported
// for an algorithm that this package does not know, and for hybridlimit.AlgConcurrent, which is for NewConcurrency.
func New(limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	if err := check(limit, cfg); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(limit)
	return newLimiter(limit, cfg, shards.Count(cfg.MaxKeys, runtime.GOMAXPROCS(0)), time.Now()), nil
}

// newLimiter makes a limiter of arguments that check has accepted, with the defaults set. shards is a power of two, at
// most MaxKeys.
func newLimiter(limit hybridlimit.Limit, cfg Config, shards int, start time.Time) *Limiter {
	l := &Limiter{
		core: &core{
			limits:  limits{cfg: cfg, first: limit, start: start},
			classes: classes.Of(cfg.Classes),
			closed:  make(chan struct{}),
		},
		store: store{maphash.MakeSeed(), make([]shard, shards)},
		order: made.Add(1),
	}
	l.class = l.classes[0]
	l.views = []*Limiter{l}
	for _, class := range l.classes[1:] {
		view := *l
		view.class = class
		l.views = append(l.views, &view)
	}
	l.counting.Store(uint32(limit.Algorithm))
	base := newPlan(limit, cfg.IdleAfter, start)
	l.base.Store(base)
	for i := range l.shards {
		room := cfg.MaxKeys / shards
		if i < cfg.MaxKeys%shards {
			room++
		}
		l.shards[i].open(room, base)
	}
	return l
}

// Class returns the view of a class that Config.Classes declares, or for hybridlimit.ClassCritical the limiter itself.
// A call through a view is admitted only if it leaves the floor of the class. Result.Limit is the burst without it. A
// reservation of a class books nothing ahead of a bucket. Charge is unconditional, and passes the floor.
//
// A view shares keys, limits and Close with the limiter. The views of a limiter join each other in AllowJoint. The
// error is ErrInvalid for any other name.
func (l *Limiter) Class(name string) (*Limiter, error) {
	place, err := l.classes.Find("local", l.cfg.Name, name)
	if err != nil {
		return nil, err
	}
	return l.views[place], nil
}

// ForClass is Class for adapters, which take the name from a request. A name that is not declared gets the class with
// the largest floor: only a known name can be critical. A limiter without classes returns itself. It never fails.
func (l *Limiter) ForClass(name string) hybridlimit.Limiter { return l.views[l.classes.For(name)] }

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (res hybridlimit.Result, err error) {
	err = l.decide(&res, l.now(), key, 1, nil, l.request(ctx))
	return res, err
}

// AllowN takes n units of key, all or none. It fails, and takes nothing, with hybridlimit.ErrEmptyKey, ErrKeyTooLong,
// ErrCost or ErrClosed, or with the *hybridlimit.InvalidError of a limit from Config.LimitFor.
//
// An n above the burst is always denied: RetryAfter is hybridlimit.Never and Source is SourceStatic. The other fields
// describe the key, which is neither created nor changed.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res hybridlimit.Result, err error) {
	err = l.decide(&res, l.now(), key, n, nil, l.request(ctx))
	return res, err
}

// now returns the shard time. It reads one clock, and time.Now two.
func (l *Limiter) now() time.Duration {
	if l.clock != nil {
		return l.clock()
	}
	return time.Since(l.start)
}

// request returns the request id of a call, or "" if the limiter keeps no log.
func (l *Limiter) request(ctx context.Context) string {
	if hybridlimit.Algorithm(l.counting.Load()) != hybridlimit.AlgSlidingLog {
		return ""
	}
	return hybridlimit.RequestID(ctx)
}

// decide takes n units or none, and writes the answer to res, which is zero. A Result that is returned is copied twice,
// which takes as long as the lookup of a hot key. with is the plan of a limit that comes with the call, or nil.
func (l *Limiter) decide(res *hybridlimit.Result, now time.Duration, key string, n int64, with *plan, request string) error {
	var at place
	if err := l.lock(&at, now, key, n, with); err != nil {
		return err
	}
	switch left := at.pausedFor(); {
	case left > 0:
		at.mu.Unlock()
		*res = l.pausedResult(&at, left)
		return nil
	case static(at.plan.limit.Algorithm):
		at.mu.Unlock()
		*res = l.static(at.plan, n)
		return nil
	case n > at.plan.burst-at.floor:
		seen := at.glance().look(at.at, 0)
		at.mu.Unlock()
		*res = l.never(&at, seen)
		return nil
	}
	delay, ok, seen := at.use(request).decide(at.at, n, at.floor)
	at.mu.Unlock() // the rest needs no lock
	res.Limit, res.Remaining = at.plan.burst-at.floor, max(0, seen.room-at.floor)
	res.RetryAfter, res.ResetAfter = after(seen.retry, at.behind), after(seen.reset, at.behind)
	res.Source, res.Policy = hybridlimit.SourceLocal, l.cfg.Name
	if ok {
		res.Allowed, res.Granted, res.Delay = true, n, after(delay, at.behind)
	}
	return nil
}

// lock locks the shard of a key for a call, and sets at, which is zero but for peeks, unless there is an error.
func (l *Limiter) lock(at *place, now time.Duration, key string, n int64, with *plan) error {
	if err := adapter.CheckRequest(key, n, l.cfg.MaxKeyBytes); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	at.shard, at.key = &l.shards[l.index(key)], key
	at.mu.Lock()
	at.find()
	if l.cfg.LimitFor != nil && l.due(at, now, with) {
		q := l.question(at, now)
		at.mu.Unlock()
		l.ask(&q, key)
		at.mu.Lock()
		at.find()
		if err := l.answer(at, now, &q); err != nil {
			at.mu.Unlock()
			return err
		}
	}
	if at.closed {
		at.mu.Unlock()
		return errClosed
	}
	l.enter(at, now, with)
	return nil
}

// enter sets the time and the limit of a call whose key was found.
func (l *Limiter) enter(at *place, now time.Duration, with *plan) {
	at.at, at.behind = at.tick(now)
	if at.plan = with; with == nil {
		at.plan = at.limit()
	}
	if l.class.Floor > 0 {
		at.floor = l.floor(at.plan.limit)
	}
}

// call locks the shard of a key and returns the answer of do. It answers itself for a limit that counts nothing, and,
// if the call takes units or peeks, for a key that is paused.
func (l *Limiter) call(at *place, key string, n int64, takes bool, do func() hybridlimit.Result) (hybridlimit.Result, error) {
	if err := l.lock(at, l.now(), key, n, nil); err != nil {
		return hybridlimit.Result{}, err
	}
	defer at.mu.Unlock()
	if left := at.pausedFor(); (takes || at.peeks) && left > 0 {
		return l.pausedResult(at, left), nil
	}
	if static(at.plan.limit.Algorithm) {
		return l.static(at.plan, n), nil
	}
	return do(), nil
}

// visit calls f with the locked shard of a key, for a call that needs no limit.
func (l *Limiter) visit(key string, f func(s *shard)) error {
	if err := adapter.CheckRequest(key, 1, l.cfg.MaxKeyBytes); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	return l.shards[l.index(key)].visit(f)
}

// floor returns the units of a limit that the limiter's class leaves to others.
func (l *Limiter) floor(limit hybridlimit.Limit) int64 {
	if l.class.Floor == 0 || static(limit.Algorithm) {
		return 0
	}
	return hybridlimit.Class{Floor: l.class.Floor}.Units(limit)
}

// result returns the answer for a look at a key. Its waits count from the caller's time.
func (l *Limiter) result(at *place, seen look) hybridlimit.Result {
	return hybridlimit.Result{
		Limit:      at.plan.burst - at.floor,
		Remaining:  max(0, seen.room-at.floor),
		RetryAfter: after(seen.retry, at.behind),
		ResetAfter: after(seen.reset, at.behind),
		Source:     hybridlimit.SourceLocal,
		Policy:     l.cfg.Name,
	}
}

// static returns the answer of a limit that counts nothing.
func (l *Limiter) static(p *plan, n int64) hybridlimit.Result {
	res := hybridlimit.Result{Limit: p.burst, Source: hybridlimit.SourceStatic, Policy: l.cfg.Name}
	if res.Allowed = p.limit.Algorithm == hybridlimit.AlgUnlimited; res.Allowed {
		res.Granted, res.Remaining = n, p.burst
	} else {
		res.RetryAfter = hybridlimit.Never
	}
	return res
}

// never returns the answer to a cost above the burst.
func (l *Limiter) never(at *place, seen look) hybridlimit.Result {
	seen.room = min(seen.room, at.plan.burst)
	res := l.result(at, seen)
	res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	return res
}

// after converts a wait from the shard's time to the caller's.
func after(d, behind time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return min(d, hybridlimit.Never-1-behind) + behind
}

// Name returns Config.Name, as in Result.Policy.
func (l *Limiter) Name() string { return l.cfg.Name }

// Policy returns the limit that is enforced on key, for a class without its floor.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	limit := l.base.Load().limit
	if l.cfg.LimitFor != nil {
		if own := l.cfg.LimitFor(key); own != l.first {
			limit = own
		}
	}
	return hybridlimit.Policy{Name: l.cfg.Name, Limit: classes.Without(limit, l.floor(limit))}
}

// Len returns the number of keys held, including idle keys that no call has dropped yet. After Close it is 0. Len locks
// one shard after the other, so its result is no snapshot under load.
func (l *Limiter) Len() int {
	n := 0
	_ = l.each(func(s *shard) { n += s.keys.Len() }) // a closed shard has none
	return n
}

// Evicted returns the number of keys that were evicted before they were full again. Each such key got at most one burst
// too much, and lost its debt. If the number grows, MaxKeys is too small or a caller invents keys.
func (l *Limiter) Evicted() uint64 {
	var n uint64
	for i := range l.shards {
		n += l.shards[i].lost.Load()
	}
	return n
}

// Close frees all keys and ends every Wait. Later decisions fail with hybridlimit.ErrClosed. It always returns nil, and
// closing again does nothing.
func (l *Limiter) Close() error {
	l.closing.Do(func() {
		close(l.closed)
		_ = l.each(func(s *shard) { s.keys, s.closed = newKeys(1), true })
	})
	return nil
}

// Shutdown is Close. It exists so that a program can change the package of its limiter without other changes: nothing
// has to be sent, so ctx has no effect.
func (l *Limiter) Shutdown(context.Context) error { return l.Close() }

// Ready returns nil, or hybridlimit.ErrClosed after Close. It exists for the same reason as Shutdown: a limiter of one
// process is ready at once.
func (l *Limiter) Ready(context.Context) error {
	select {
	case <-l.closed:
		return hybridlimit.ErrClosed
	default:
		return nil
	}
}
