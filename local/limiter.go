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
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/shards"
)

// Limiter is one limit for many keys, in this process only. Make one with New. It is safe for concurrent use.
//
// Only Wait checks whether ctx has ended. The other methods wait only for locks that are held for a memory operation. A
// log reads the request id from ctx.
type Limiter struct {
	*core

	// The views of a limiter have copies of these fields, which never change.
	cfg    Config            // defaults filled in
	first  hybridlimit.Limit // the limit given to New
	start  time.Time         // shard time 0
	seed   maphash.Seed
	shards []shard // a power of two
	order  uint64  // position among all limiters: AllowJoint takes locks in this order
	class  classes.Class
}

// core is the part of a limiter that changes, which its classes share.
type core struct {
	classes   classes.Set
	views     []*Limiter // one for each class; the first is the limiter itself
	plans     plans      // plans of limits from calls, LimitFor and SetLimit
	questions questions  // to LimitFor

	counting atomic.Uint32        // see counts
	base     atomic.Pointer[plan] // the plan of all shards, for Policy, which is called per request

	changing sync.Mutex // held by SetLimit, so that all shards end with the same limit
	closing  sync.Once
	closed   chan struct{}
}

var _ hybridlimit.Limiter = (*Limiter)(nil)

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
		core:   &core{classes: classes.Of(cfg.Classes), closed: make(chan struct{})},
		cfg:    cfg,
		first:  limit,
		start:  start,
		seed:   maphash.MakeSeed(),
		shards: make([]shard, shards),
		order:  made.Add(1),
	}
	l.views = []*Limiter{l}
	for i, class := range l.classes {
		if i == 0 {
			l.class = class
			continue
		}
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
func (l *Limiter) now() time.Duration { return time.Since(l.start) }

// decide takes n units or none, and writes the answer to res, which is zero. A Result that is returned is copied twice,
// which takes as long as the lookup of a hot key. with is the plan of a limit that comes with the call, or nil.
func (l *Limiter) decide(res *hybridlimit.Result, now time.Duration, key string, n int64, with *plan, request string) error {
	var at place
	if err := l.lock(&at, now, key, n, with == nil); err != nil {
		return err
	}
	t, behind := at.tick(now)
	p := at.limit(with)
	floor := int64(0)
	if l.class.Floor > 0 {
		floor = l.floor(p)
	}
	switch {
	case static(p.limit.Algorithm):
		at.mu.Unlock()
		*res = l.static(p, n)
		return nil
	case n > p.burst-floor:
		seen := at.glance(p).look(t, 0)
		at.mu.Unlock()
		*res = l.never(seen, p, behind)
		return nil
	}
	e := at.find(p)
	e.use(p, t)
	e.by(request)
	var delay time.Duration
	var ok bool
	var seen look
	if floor == 0 {
		delay, ok, seen = e.state.decide(p, t, n)
	} else {
		delay, ok, seen = decideAbove(e.state, p, t, n, floor)
	}
	at.mu.Unlock() // the rest needs no lock
	res.Limit, res.Remaining = p.burst-floor, seen.room
	res.RetryAfter, res.ResetAfter = after(seen.retry, behind), after(seen.reset, behind)
	res.Source, res.Policy = hybridlimit.SourceLocal, l.cfg.Name
	if ok {
		res.Allowed, res.Granted, res.Delay = true, n, after(delay, behind)
	}
	return nil
}

// lock locks the shard of a key and sets at, which is zero, unless there is an error. asks reports whether the call may
// ask LimitFor again about a key that is held.
func (l *Limiter) lock(at *place, now time.Duration, key string, n int64, asks bool) error {
	if err := hybridlimit.CheckRequest(key, n, l.cfg.MaxKeyBytes); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	at.shard, at.key = &l.shards[l.index(key)], key
	at.mu.Lock()
	at.look()
	if l.cfg.LimitFor != nil && !at.closed && l.due(at, now, asks) {
		q := l.question(at, now)
		at.mu.Unlock() // the callback may be slow or call this limiter
		q.ask(l, key)
		at.mu.Lock()
		at.look()
		if err := l.answer(at, now, &q); err != nil {
			at.mu.Unlock()
			return err
		}
	}
	if at.closed {
		at.mu.Unlock()
		return errClosed
	}
	return nil
}

// place returns the place of a key, without its entry.
func (l *Limiter) place(key string) place { return place{shard: &l.shards[l.index(key)], key: key} }

// index returns the index of a key's shard.
func (l *Limiter) index(key string) int {
	return int(maphash.String(l.seed, key) & uint64(len(l.shards)-1))
}

// limit returns the plan that applies to a call. with is that of the call, or nil.
func (at *place) limit(with *plan) *plan {
	own := at.own
	if at.entry != nil {
		own = at.entry.own
	}
	switch {
	case with != nil:
		return with
	case own != nil:
		return own
	default:
		return at.base
	}
}

// result returns the Result for a look at a key. Its waits count from the caller's time, which is behind the shard's.
func (l *Limiter) result(seen look, p *plan, behind time.Duration) hybridlimit.Result {
	floor := l.floor(p)
	return hybridlimit.Result{
		Limit:      p.burst - floor,
		Remaining:  max(0, seen.room-floor),
		RetryAfter: after(seen.retry, behind),
		ResetAfter: after(seen.reset, behind),
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
func (l *Limiter) never(seen look, p *plan, behind time.Duration) hybridlimit.Result {
	seen.room = min(seen.room, p.burst)
	res := l.result(seen, p, behind)
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

var errClosed = fmt.Errorf("local: %w", hybridlimit.ErrClosed)
