package hybrid

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// ConcurrencyLimiter limits the calls that run at once in a whole fleet, for many
// keys. Make one with Hub.Concurrency. It is safe for concurrent use.
//
// Redis has, for each key, the number of permits that each process holds. A process admits calls from the permits that
// it holds, and gives back those that it does not need. The permits of a process live with its heartbeat, not with a
// call: a call may take hours without a renewal. The permits of a process that has ended are free about 3 s after the
// first call that they refuse. internal/permits has the protocol, and docs/decisions/0051-permits-by-membership.md the
// reasons.
//
// The calls in flight of the fleet never exceed the limit, except in these cases:
//
//   - a process was cut off from Redis, or did not run, for longer than 0.8 s (its
//     last heartbeat may have been a second before): its running calls go on, and
//     others may get their permits. A process that did not run may also begin calls
//     until its clock has ticked, within some ms;
//   - the fallback decides: Redis does not answer (then each process runs at least
//     FallbackFloor calls, so N processes together more than a limit below N), or has
//     lost its state and learns it again for 3 s (also when a limiter is used for the
//     first time);
//   - Redis evicts a key, or fails over and loses writes;
//   - processes have different limits: then the largest counts.
type ConcurrencyLimiter struct {
	base    *Limiter // name, limits, switches, settings, fleet, counters; it decides nothing
	wait    time.Duration
	exact   bool
	most    int64 // ConcurrencyConfig.MaxKeys
	seed    maphash.Seed
	shards  []permitShard
	floor   int64        // ConcurrencyConfig.FallbackFloor
	floored atomic.Int32 // floorDue, floorSaid, or 0: it has raised no share since Redis answered
	keys    atomic.Int64 // in all shards
	room    atomic.Bool  // a key has come to be unused since makeRoom has looked at all of them
}

var (
	_ hybridlimit.Acquirer  = (*ConcurrencyLimiter)(nil)
	_ hybridlimit.Describer = (*ConcurrencyLimiter)(nil)
)

const (
	// permitShards is the number of shards of a limiter: a power of two.
	permitShards = 64
	// unlimited is the number of permits of Unlimited. Other limits have fewer.
	unlimited = math.MaxInt64
	// permitHint is the RetryAfter of a denial. The end of a call is not known before.
	permitHint = time.Second
)

// Concurrency adds a limiter of calls in flight to the hub: a limit of hybridlimit.Concurrent, Unlimited or Blocked. It
// is counted in the hub's heartbeat. The names of all limiters of a hub are different. A hub with such a limiter has
// one goroutine more, and one for each tag with a message in flight.
//
// The error is a *hybridlimit.InvalidError with all violations of limit and cfg, or wraps hybridlimit.ErrClosed, or
// hybridlimit.ErrUnsupported for the limit of a rate.
func (h *Hub) Concurrency(limit hybridlimit.Limit, cfg ConcurrencyConfig) (*ConcurrencyLimiter, error) {
	if err := errors.Join(cfg.violations(limit).Err("hybrid"), counted(limit)); err != nil {
		return nil, err
	}
	l := &ConcurrencyLimiter{
		wait: cfg.MaxWait, exact: cfg.Mode == ModeExact, floor: cfg.FallbackFloor, most: int64(cfg.MaxKeys),
		seed: maphash.MakeSeed(), shards: make([]permitShard, permitShards),
	}
	if l.most == 0 {
		l.most = defaultMaxKeys
	}
	if l.floor == 0 {
		l.floor = 1
	}
	for i := range l.shards {
		l.shards[i].keys = map[uint64]*permitEntry{}
	}
	if _, err := h.limiter(limit, cfg.base(), l); err != nil { // sets l.base
		return nil, err
	}
	return l, nil
}

// Allow returns hybridlimit.ErrUnsupported: use Acquire.
func (l *ConcurrencyLimiter) Allow(context.Context, string) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, errHold
}

// AllowN returns hybridlimit.ErrUnsupported: use AcquireN.
func (l *ConcurrencyLimiter) AllowN(context.Context, string, int64) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, errHold
}

var errHold = fmt.Errorf("hybrid: %w: a permit is held while the call runs: use Acquire", hybridlimit.ErrUnsupported)

// Acquire is AcquireN with one permit.
func (l *ConcurrencyLimiter) Acquire(ctx context.Context, key string) (p hybridlimit.Permit, res hybridlimit.Result, err error) {
	if e := l.take(ctx, key, 1, &res); e != nil {
		return hybridlimit.NewPermit(e, 1), res, nil
	}
	return l.acquire(ctx, key, 1)
}

// AcquireN acquires n permits of key, all or none, for one call. If this process holds them, that needs no message.
// Otherwise the call waits for Redis, and for permits of other calls: see ConcurrencyConfig.MaxWait. No call of a key
// overtakes another one of the same process. Calls of other processes may overtake it: while permits are scarce, a call
// for several can wait for long beside calls for one. A call that gets no permits is denied: the Result says so, and
// the Permit is zero.
//
// Release the Permit when the call ends, also after a panic. Release sends no message itself. Remaining is the number
// of free permits, as far as this process knows. RetryAfter of a denial is a hint of 1 s, because the end of a call is
// not known before. For an n above the limit it is hybridlimit.Never, without a wait. Source is SourceLease if the
// process held the permits, SourceRedis if Redis was asked, and SourceFallback if the fallback decided. SourceTimeout
// is a denial because Redis did not answer in time and the fallback has no permits.
//
// The errors are hybridlimit.ErrEmptyKey, ErrKeyTooLong, ErrCost, ErrClosed, ErrTooManyKeys, the error of ctx, and the
// *hybridlimit.InvalidError of a limit from LimitFor. Nothing is held then.
func (l *ConcurrencyLimiter) AcquireN(ctx context.Context, key string, n int64) (p hybridlimit.Permit, res hybridlimit.Result, err error) {
	if e := l.take(ctx, key, n, &res); e != nil {
		return hybridlimit.NewPermit(e, n), res, nil
	}
	return l.acquire(ctx, key, n)
}

// take is the fast path: the permits of the key are at hand. It returns nil if acquire must decide; res has no meaning
// then. It reads no clock: the membership holds until an epoch, as the budgets of a Limiter do. The answer is written
// in place: see keys.Terms.Common.
func (l *ConcurrencyLimiter) take(ctx context.Context, key string, n int64, res *hybridlimit.Result) *permitEntry {
	b := l.base
	st := b.hub.permits.standing.Load()
	if b.clock.Epoch() > st.good || n < 1 || b.control.Keyed() || b.control.Canary() || ctx.Err() != nil {
		return nil
	}
	s, hash := l.shard(key)
	s.mu.Lock() // Close visits the shards after it has closed the base, so no call begins after a Close
	e := s.find(hash, key)
	if e == nil || b.control.Wordless() || e.limit != b.control.Plan().Burst || !e.Take(st.Session, n) {
		s.mu.Unlock()
		return nil
	}
	s.taken++
	s.passed += n
	res.Limit, res.Remaining = e.limit, e.left()
	s.mu.Unlock()
	res.Allowed, res.Granted, res.Source, res.Policy = true, n, hybridlimit.SourceLease, b.cfg.Name
	return e
}

// acquire is AcquireN off the fast path.
func (l *ConcurrencyLimiter) acquire(ctx context.Context, key string, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	b := l.base
	if err := b.check(key, n); err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	if res, ok := b.decidedBySwitch(n); ok {
		return free(res, n)
	}
	most, own, err := l.limitOf(key)
	switch {
	case err != nil:
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	case most == unlimited:
		l.retune(key, most, own)
		return l.decide(nil, hybridlimit.Result{Allowed: true, Limit: most, Remaining: most, Source: hybridlimit.SourceStatic}, n)
	case n > most:
		l.retune(key, most, own)
		return l.decide(nil, hybridlimit.Result{Limit: most, RetryAfter: hybridlimit.Never, Source: hybridlimit.SourceStatic}, n)
	}
	b.hub.heart.Pace.Event(0)
	e, err := l.entry(key)
	if err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	now := b.clock.Now()
	tuned := e.tune(most, own, now)
	c := l.conditions(e, now)
	how := e.Acquire(&c, n, now)
	if how == permits.Waits {
		w := &permitCall{ready: make(chan struct{})}
		w.N, w.Once, w.Caller = n, l.wait == 0, w
		e.Wait(&w.Waiter)
		e.turn(now)
		return l.await(ctx, e, w)
	}
	res := hybridlimit.Result{Allowed: true, Limit: most, Remaining: e.left(), Source: hybridlimit.SourceLease}
	if how == permits.Fallback {
		res.Source = hybridlimit.SourceFallback
	}
	if tuned || how == permits.Fallback {
		e.turn(now)
	} else {
		e.shard.mu.Unlock()
	}
	return l.decide(e, res, n)
}

// decide completes the answer to a call of n permits, and counts it. e has the permits of a call that is admitted; nil:
// none are counted.
func (l *ConcurrencyLimiter) decide(e *permitEntry, res hybridlimit.Result, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	b := l.base
	res.Policy = b.cfg.Name
	b.terms.Count.Decided(res.Source, res.Allowed, n)
	if !res.Allowed {
		return free(b.control.Shadowed(res, n), n)
	}
	res.Granted = n
	if e == nil {
		return free(res, n)
	}
	return hybridlimit.NewPermit(e, n), res, nil
}

// free returns an answer with a permit that is of no key, if the call is admitted.
func free(res hybridlimit.Result, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	if !res.Allowed {
		return hybridlimit.Permit{}, res, nil
	}
	return hybridlimit.NewPermit(uncountedPermits{}, n), res, nil
}

// uncountedPermits holds the permits of calls that no limit counts: under Unlimited, shadow and SwitchAllowAll.
type uncountedPermits struct{}

func (uncountedPermits) ReleasePermits(int64) {}

// limitOf returns the permits of a key, and whether they are the key's own by LimitFor. It runs a callback of the user.
func (l *ConcurrencyLimiter) limitOf(key string) (most int64, own bool, err error) {
	b := l.base
	limit, own := b.control.LimitFor(key)
	if !own {
		return limit.BurstSize(), false, nil
	}
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	control.AddRate(&bad, "Limit", limit)
	if err := bad.Err("hybrid"); err != nil {
		b.terms.Count.BadLimits.Add(1)
		return 0, false, fmt.Errorf("hybrid: ConcurrencyConfig.LimitFor(%q): %w", key, err)
	}
	return limit.BurstSize(), true, nil
}

// await waits until the call is admitted or denied, or until it gives up. It stops to wait for a permit after MaxWait,
// and for an answer of Redis after SyncTimeout.
func (l *ConcurrencyLimiter) await(ctx context.Context, e *permitEntry, w *permitCall) (hybridlimit.Permit, hybridlimit.Result, error) {
	h := l.base.hub
	timer := time.NewTimer(l.wait)
	defer timer.Stop()
	patient, once := l.wait, w.Once
	if once {
		patient = h.cfg.SyncTimeout
		timer.Reset(patient)
	}
	var gone error
	for waits := true; waits; {
		select {
		case <-w.ready:
			waits = false
		case <-ctx.Done():
			gone, waits = ctx.Err(), false
			e.abandon(w)
		case <-timer.C:
			if rest := h.cfg.SyncTimeout - patient; !once && rest > 0 && e.impatient(w) {
				once, patient = true, h.cfg.SyncTimeout
				timer.Reset(rest)
				continue
			}
			waits = false
			e.giveUp(w)
		}
	}
	switch {
	case w.state == permitShut:
		return hybridlimit.Permit{}, hybridlimit.Result{}, hybridlimit.ErrClosed
	case gone != nil:
		if w.state == permitServed {
			e.ReleasePermits(w.N)
		}
		return hybridlimit.Permit{}, hybridlimit.Result{}, gone
	}
	res := hybridlimit.Result{Allowed: w.state == permitServed, Limit: w.limit, Remaining: w.left, Source: w.source}
	if res.Allowed {
		return l.decide(e, res, w.N)
	}
	if res.RetryAfter = permitHint; w.N > w.limit {
		res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	}
	return l.decide(nil, res, w.N)
}

// Peek returns this process's knowledge of a key: Allowed means that it holds a permit that no call uses, or that Redis
// had a free one at the last answer. Peek acquires nothing, sends nothing and fails as Acquire does.
func (l *ConcurrencyLimiter) Peek(_ context.Context, key string) (hybridlimit.Result, error) {
	b := l.base
	if err := b.check(key, 1); err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := b.switched(1); ok {
		return res, nil
	}
	most, _, err := l.limitOf(key)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res := hybridlimit.Result{Limit: most, Remaining: most, Source: hybridlimit.SourceStatic, Policy: b.cfg.Name}
	if most > 0 && most < unlimited {
		s, hash := l.shard(key)
		s.mu.Lock()
		if e := s.find(hash, key); e != nil {
			res.Remaining = e.left()
		}
		s.mu.Unlock()
		res.Source = hybridlimit.SourceLease
	}
	if res.Allowed = res.Remaining > 0; res.Allowed {
		return res, nil
	}
	if res.RetryAfter = permitHint; most == 0 {
		res.RetryAfter = hybridlimit.Never
	}
	return b.control.Shadowed(res, 1), nil
}

// Running returns the number of permits of a key that calls of this process use. It works after Close too.
func (l *ConcurrencyLimiter) Running(key string) int64 {
	s, hash := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(hash, key); e != nil {
		return e.Used()
	}
	return 0
}

// Len returns the number of keys in memory: those with permits, with running or
// waiting calls, or with a message of the last ten seconds.
func (l *ConcurrencyLimiter) Len() int { return int(l.keys.Load()) }

// Reset makes Redis forget the permits of a key in all processes, and learn them again from their running calls. While
// it learns, for 3 s, the fallback decides. It is for a key whose permits in Redis are wrong. Running calls go on, and
// keep their permits. Reset waits for the answer, at most for HubConfig.SyncTimeout. Without one it returns
// ErrUnavailable, and Redis resets the key when it can be reached.
func (l *ConcurrencyLimiter) Reset(ctx context.Context, key string) error {
	b := l.base
	if err := b.check(key, 1); err != nil {
		return err
	}
	most, own, err := l.limitOf(key)
	if err != nil || most == 0 || most == unlimited {
		return err
	}
	b.hub.heart.Pace.Event(0)
	e, err := l.entry(key)
	if err != nil {
		return err
	}
	now := b.clock.Now()
	e.tune(most, own, now)
	done := make(chan struct{})
	e.resets = append(e.resets, done)
	e.Reset()
	e.turn(now)
	defer e.forgo(done)
	timer := time.NewTimer(b.hub.cfg.SyncTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.hub.ctx.Done():
		return hybridlimit.ErrClosed
	case <-timer.C:
		return fmt.Errorf("hybrid: reset of a key of limiter %q: %w: no answer within %v", b.cfg.Name, hybridlimit.ErrUnavailable, b.hub.cfg.SyncTimeout)
	}
}

// Close denies all further calls with hybridlimit.ErrClosed, those that wait too. It returns at once. Permits of
// running calls stay valid: the hub tells them to the fleet until they are released, and then the limiter's name is
// free. Hub.Close ends that: the fleet then gives the permits of calls that still run to others, about 3 s after the
// first call that they refuse. Close is idempotent, and its error is always nil.
func (l *ConcurrencyLimiter) Close() error {
	l.base.shut()
	l.stop()
	if l.keys.Load() == 0 {
		l.ended()
	}
	return nil
}

// Shutdown is Close, and then waits until all calls have released their permits and
// Redis has them back. It stops waiting when ctx ends, or after 5 s if ctx has no
// deadline. The error then has the number of permits that are still held.
func (l *ConcurrencyLimiter) Shutdown(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleWithin)
		defer cancel()
	}
	return errors.Join(l.Close(), l.base.hub.permits.drain(ctx, []*Limiter{l.base}))
}

// stop ends the waits of all calls, and sends permits without a call back. The limiter is closed.
func (l *ConcurrencyLimiter) stop() {
	now := l.base.clock.Now()
	l.each(func(e *permitEntry) {
		e.shard.mu.Lock()
		if e.dropped {
			e.shard.mu.Unlock()
			return
		}
		c := l.conditions(e, now)
		c.Limit = 0 // no call fits
		for w := e.Denied(&c, now); w != nil; w = e.Denied(&c, now) {
			w.Caller.(*permitCall).end(e, permitShut, 0)
		}
		e.turn(now)
	})
}

// ended frees the name of a closed limiter without keys.
func (l *ConcurrencyLimiter) ended() {
	if l.keys.Load() == 0 {
		l.base.hub.forget(l.base)
	}
}

// drain waits until closed limiters hold no permits. Of a key whose part of Redis is away, it waits for running calls
// only.
func (m *membership) drain(ctx context.Context, limiters []*Limiter) error {
	t := time.NewTicker(keys.Tick)
	defer t.Stop()
	for {
		var running, booked int64
		for _, l := range limiters {
			if l.flight == nil {
				continue
			}
			l.flight.each(func(e *permitEntry) {
				e.shard.mu.Lock()
				defer e.shard.mu.Unlock()
				running += e.Used()
				if !m.hub.broken(e.tag) {
					booked += e.Booked()
				}
			})
		}
		if booked == 0 && running == 0 {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			if running == 0 { // Redis takes them off when the process has left
				return nil
			}
			return fmt.Errorf("hybrid: Shutdown ended with %d permits of calls that still run: %w", running, ctx.Err())
		}
	}
}
