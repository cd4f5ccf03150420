// Package inflight limits the calls in flight of a fleet: the keys of each limiter (keys.go), the waits of calls
// (limiter.go), and what a process has once: its membership (members.go), its messages (lane.go) and planned times
// (waker.go). internal/permits has the protocol, and docs/decisions/0051-permits-by-membership.md the reasons.
package inflight

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// Config is the part of ConcurrencyConfig that this package decides by. It is valid, and has the defaults.
type Config struct {
	Name        string
	Exact       bool
	MaxWait     time.Duration
	MaxKeys     int64
	MaxKeyBytes int
	Floor       int64 // FallbackFloor
	TagBy       func(key string) string
}

// Limiter implements hybrid.ConcurrencyLimiter, which has the comments of its methods.
type Limiter struct {
	Config
	Count   tell.Counts
	members *Members
	clock   *clock.Clock
	control *control.View
	party   *member.Party
	ended   func() // is called when it is closed and no key is left
	seed    maphash.Seed
	shards  []shard
	floored atomic.Int32 // floorDue, floorSaid, or 0: it has raised no share since Redis answered
	keys    atomic.Int64 // in all shards
	room    atomic.Bool  // a key has come to be unused since makeRoom has looked at all of them
}

const (
	// shardCount is the number of shards of a limiter: a power of two.
	shardCount = 64
	// Unlimited is the number of permits of hybridlimit.Unlimited. Other limits have fewer.
	Unlimited = math.MaxInt64
	// retryHint is the RetryAfter of a denial. The end of a call is not known before.
	retryHint = time.Second
)

// New returns a limiter. It calls ended, maybe more than once, when it is closed and no key is left.
func (m *Members) New(cfg Config, view *control.View, party *member.Party, ended func()) *Limiter {
	l := &Limiter{
		Config: cfg, members: m, clock: m.env.Clock, control: view, party: party, ended: ended,
		seed: maphash.MakeSeed(), shards: make([]shard, shardCount),
	}
	for i := range l.shards {
		l.shards[i].keys = map[uint64]*entry{}
	}
	return l
}

// Take is the fast path: the permits of the key are at hand. It returns nil if Acquire must decide; res has no meaning
// then. It reads no clock: the membership holds until an epoch, as the budgets of a limiter of rates do. The answer is
// written in place: see keys.Terms.Common.
func (l *Limiter) Take(ctx context.Context, key string, n int64, res *hybridlimit.Result) hybridlimit.PermitHolder {
	st := l.members.standing.Load()
	if l.clock.Epoch() > st.good || n < 1 || l.control.Keyed() || l.control.Canary() || ctx.Err() != nil {
		return nil
	}
	s, hash := l.shard(key)
	s.mu.Lock() // Stop visits the shards after the control is closed, so no call begins after it
	e := s.find(hash, key)
	if e == nil || l.control.Wordless() || e.limit != l.control.Plan().Burst || !e.Take(st.Session, n) {
		s.mu.Unlock()
		return nil
	}
	s.taken++
	s.passed += n
	res.Limit, res.Remaining = e.limit, e.left()
	s.mu.Unlock()
	res.Allowed, res.Granted, res.Source, res.Policy = true, n, hybridlimit.SourceLease, l.Name
	return e
}

// Acquire acquires n permits of a key, off the fast path.
func (l *Limiter) Acquire(ctx context.Context, key string, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	if err := l.control.Check(key, n, l.MaxKeyBytes); err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	if res, ok := l.control.Switched(n); ok {
		l.members.env.Event()
		l.Count.Decided(res.Source, res.Allowed, n)
		return free(res, n)
	}
	most, own, err := l.limitOf(key)
	switch {
	case err != nil:
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	case most == Unlimited:
		l.retune(key, most, own)
		return l.decide(nil, hybridlimit.Result{Allowed: true, Limit: most, Remaining: most, Source: hybridlimit.SourceStatic}, n)
	case n > most:
		l.retune(key, most, own)
		return l.decide(nil, hybridlimit.Result{Limit: most, RetryAfter: hybridlimit.Never, Source: hybridlimit.SourceStatic}, n)
	}
	l.members.env.Event()
	e, err := l.entry(key)
	if err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	now := l.clock.Now()
	tuned := e.tune(most, own, now)
	c := l.conditions(e, now)
	how := e.Acquire(&c, n, now)
	if how == permits.Waits {
		w := &waitingCall{ready: make(chan struct{})}
		w.N, w.Once, w.Caller = n, l.MaxWait == 0, w
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
func (l *Limiter) decide(e *entry, res hybridlimit.Result, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	res.Policy = l.Name
	l.Count.Decided(res.Source, res.Allowed, n)
	if !res.Allowed {
		return free(l.control.Shadowed(res, n), n)
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
func (l *Limiter) limitOf(key string) (most int64, own bool, err error) {
	limit, own := l.control.LimitFor(key)
	if !own {
		return limit.BurstSize(), false, nil
	}
	var bad adapter.Violations
	bad.AddLimit(limit)
	control.AddRate(&bad, "Limit", limit)
	if err := bad.Err("hybrid"); err != nil {
		l.Count.BadLimits.Add(1)
		return 0, false, fmt.Errorf("hybrid: ConcurrencyConfig.LimitFor(%q): %w", key, err)
	}
	return limit.BurstSize(), true, nil
}

// await waits until the call is admitted or denied, or until it gives up. It stops to wait for a permit after MaxWait,
// and for an answer of Redis after the engine's Timeout.
func (l *Limiter) await(ctx context.Context, e *entry, w *waitingCall) (hybridlimit.Permit, hybridlimit.Result, error) {
	timeout := l.members.env.Engine.Timeout()
	timer := time.NewTimer(l.MaxWait)
	defer timer.Stop()
	patient, once := l.MaxWait, w.Once
	if once {
		patient = timeout
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
			if rest := timeout - patient; !once && rest > 0 && e.impatient(w) {
				once, patient = true, timeout
				timer.Reset(rest)
				continue
			}
			waits = false
			e.giveUp(w)
		}
	}
	switch {
	case w.state == isShut:
		return hybridlimit.Permit{}, hybridlimit.Result{}, hybridlimit.ErrClosed
	case gone != nil:
		if w.state == isServed {
			e.ReleasePermits(w.N)
		}
		return hybridlimit.Permit{}, hybridlimit.Result{}, gone
	}
	res := hybridlimit.Result{Allowed: w.state == isServed, Limit: w.limit, Remaining: w.left, Source: w.source}
	if res.Allowed {
		return l.decide(e, res, w.N)
	}
	if res.RetryAfter = retryHint; w.N > w.limit {
		res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	}
	return l.decide(nil, res, w.N)
}

// Peek returns what this process knows of a key.
func (l *Limiter) Peek(key string) (hybridlimit.Result, error) {
	if err := l.control.Check(key, 1, l.MaxKeyBytes); err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.control.Switched(1); ok {
		l.members.env.Event()
		return res, nil
	}
	most, _, err := l.limitOf(key)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res := hybridlimit.Result{Limit: most, Remaining: most, Source: hybridlimit.SourceStatic, Policy: l.Name}
	if most > 0 && most < Unlimited {
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
	if res.RetryAfter = retryHint; most == 0 {
		res.RetryAfter = hybridlimit.Never
	}
	return l.control.Shadowed(res, 1), nil
}

// Reset makes Redis forget the permits of a key, and learn them again.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := l.control.Check(key, 1, l.MaxKeyBytes); err != nil {
		return err
	}
	most, own, err := l.limitOf(key)
	if err != nil || most == 0 || most == Unlimited {
		return err
	}
	env := &l.members.env
	env.Event()
	e, err := l.entry(key)
	if err != nil {
		return err
	}
	now := l.clock.Now()
	e.tune(most, own, now)
	done := make(chan struct{})
	e.resets = append(e.resets, done)
	e.Reset()
	e.turn(now)
	defer e.forgo(done)
	timeout := env.Engine.Timeout()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-env.Context.Done():
		return hybridlimit.ErrClosed
	case <-timer.C:
		return fmt.Errorf("hybrid: reset of a key of limiter %q: %w: no answer within %v", l.Name, hybridlimit.ErrUnavailable, timeout)
	}
}

// Stop ends the waits of all calls, and sends permits without a call back. The control is closed.
func (l *Limiter) Stop() {
	now := l.clock.Now()
	l.each(func(e *entry) {
		e.shard.mu.Lock()
		if e.dropped {
			e.shard.mu.Unlock()
			return
		}
		c := l.conditions(e, now)
		c.Limit = 0 // no call fits
		for w := e.Denied(&c, now); w != nil; w = e.Denied(&c, now) {
			w.Caller.(*waitingCall).end(e, isShut, 0)
		}
		e.turn(now)
	})
}

// Close is Stop for a limiter that leaves its hub.
func (l *Limiter) Close() {
	l.Stop()
	l.endIfEmpty()
}

// endIfEmpty frees the name of a closed limiter without keys.
func (l *Limiter) endIfEmpty() {
	if l.keys.Load() == 0 {
		l.ended()
	}
}

// Drain waits until closed limiters hold no permits. Of a key whose part of Redis is away, it waits for running calls
// only.
func (m *Members) Drain(ctx context.Context, limiters ...*Limiter) error {
	t := time.NewTicker(clock.Tick)
	defer t.Stop()
	for {
		var running, booked int64
		for _, l := range limiters {
			l.each(func(e *entry) {
				e.shard.mu.Lock()
				defer e.shard.mu.Unlock()
				running += e.Used()
				if !m.env.Broken(e.tag) {
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
