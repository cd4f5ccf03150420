package leased

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/shards"
)

// Config is the part of RateLeaseConfig that this package decides by. It is valid, and has the defaults.
type Config struct {
	Name        string
	MaxWait     time.Duration
	MaxKeys     int
	MaxKeyBytes int
	Floor       int64 // FallbackFloor
	TagBy       func(key string) string
}

// Limiter implements hybrid.RateLeaseLimiter, which has the comments of its methods.
type Limiter struct {
	Config
	Count   tell.Counts
	Evicted atomic.Uint64    // keys forgotten
	Shares  *fallback.Shares // without Redis
	rates   *Rates
	clock   *clock.Clock
	control *control.View
	party   *member.Party
	done    <-chan struct{} // closed when the limiter is
	seed    maphash.Seed
	shards  []shard

	liveMu sync.Mutex // taken after a shard's
	live   []*entry   // keys with a lease
}

// New returns a limiter.
func (r *Rates) New(cfg Config, view *control.View, party *member.Party, done <-chan struct{}) *Limiter {
	l := &Limiter{
		Config: cfg, Shares: fallback.New(cfg.MaxKeys), rates: r, clock: r.env.Clock, control: view, party: party, done: done, seed: maphash.MakeSeed(),
		shards: make([]shard, shards.Count(cfg.MaxKeys, runtime.GOMAXPROCS(0))),
	}
	each := (cfg.MaxKeys + len(l.shards) - 1) / len(l.shards)
	for i := range l.shards {
		l.shards[i].lru, _ = simplelru.NewLRU(each, l.evicted) // it fails for a size below 1
	}
	return l
}

// Allow decides a call of n units.
func (l *Limiter) Allow(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.control.Check(key, n, l.MaxKeyBytes); err != nil {
		return hybridlimit.Result{}, err
	}
	l.rates.env.Event()
	if res, ok := l.control.Switched(n); ok {
		l.Count.Decided(res.Source, res.Allowed, n)
		return res, nil
	}
	plan, err := l.planOf(key)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.static(plan, n); ok {
		return l.decided(res, n), nil
	}
	e := l.lock(key, plan)
	now := l.clock.Now()
	c := e.conditions()
	action, exchange := e.Call(&c, n, now)
	exchange = exchange && !e.queued
	e.queued = e.queued || exchange
	var res hybridlimit.Result
	var w *waitingCall
	switch action {
	case ratelease.Admit:
		res = e.answer(hybridlimit.Result{Allowed: true, Source: hybridlimit.SourceRateLease}, n, e.left(now), now)
	case ratelease.Deny:
		res = e.answer(hybridlimit.Result{Source: hybridlimit.SourceRateLease}, n, e.left(now), now)
	case ratelease.Without:
		res = e.alone(n, now)
	case ratelease.Wait:
		w = &waitingCall{n: n, ready: make(chan struct{})}
		e.waits = append(e.waits, w)
	}
	e.shard.mu.Unlock()
	if exchange {
		l.rates.lanes[e.tag].add(e)
	}
	if w != nil {
		if res, err = l.await(ctx, e, w); err != nil {
			return hybridlimit.Result{}, err
		}
	}
	return l.decided(res, n), nil
}

// decided counts a decision.
func (l *Limiter) decided(res hybridlimit.Result, n int64) hybridlimit.Result {
	l.Count.Decided(res.Source, res.Allowed, n)
	return l.control.Shadowed(res, n)
}

// planOf returns the plan of a key. It runs a callback of the user.
func (l *Limiter) planOf(key string) (p *account.Plan, err error) {
	p = l.control.PlanOf(key)
	if !l.control.Keyed() {
		return p, nil
	}
	limit, _ := l.control.LimitFor(key)
	if limit == p.Limit {
		return p, nil
	}
	if err := errors.Join(limit.Validate(), l.control.Fits(limit)); err != nil {
		l.Count.BadLimits.Add(1)
		return nil, fmt.Errorf("hybrid: RateLeaseConfig.LimitFor(%q): %w", key, err)
	}
	return account.NewPlan(limit), nil
}

// static returns the answer to a call that no state decides.
func (l *Limiter) static(p *account.Plan, n int64) (res hybridlimit.Result, ok bool) {
	res = hybridlimit.Result{Limit: p.Burst, Source: hybridlimit.SourceStatic, Policy: l.Name}
	switch {
	case p.Limit.Algorithm == hybridlimit.AlgUnlimited:
		res.Allowed, res.Granted, res.Remaining = true, n, p.Burst
	case account.Static(p.Limit) || n > p.Burst:
		res.RetryAfter = hybridlimit.Never
	default:
		return res, false
	}
	return res, true
}

// Peek returns what this process knows of a key. It changes nothing.
func (l *Limiter) Peek(key string) (hybridlimit.Result, error) {
	if err := l.control.Check(key, 1, l.MaxKeyBytes); err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.control.Switched(1); ok {
		return res, nil
	}
	plan, err := l.planOf(key)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if res, ok := l.static(plan, 1); ok {
		return l.control.Shadowed(res, 1), nil
	}
	s, now := l.shard(key), l.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, _ := s.copied(l, key, 0, plan)
	// A key without a lease would ask Redis.
	res := hybridlimit.Result{Allowed: e.Left(now) >= 1 || !e.Live(now) && e.left(now) >= 1, Source: hybridlimit.SourceRateLease}
	res = e.answer(res, 1, e.left(now), now)
	res.Granted = 0
	return l.control.Shadowed(res, 0), nil
}

// Reset makes the bucket of a key full in Redis. It waits for the answer until ctx ends.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := l.control.Check(key, 1, l.MaxKeyBytes); err != nil {
		return err
	}
	plan, err := l.planOf(key)
	if err != nil || account.Static(plan.Limit) {
		return err
	}
	w := &waitingCall{ready: make(chan struct{})}
	e := l.lock(key, plan)
	e.Reset()
	e.waits = append(e.waits, w)
	due := !e.queued && !e.Busy() // otherwise the answer in flight makes it due
	e.queued = e.queued || due
	e.shard.mu.Unlock()
	if due {
		l.rates.lanes[e.tag].add(e)
	}
	select {
	case <-w.ready:
		if w.res.Allowed {
			return nil
		}
	case <-ctx.Done():
	case <-l.done:
		return hybridlimit.ErrClosed
	}
	return fmt.Errorf("hybrid: Reset: %w: Redis has not answered; it resets the key when it does", hybridlimit.ErrUnavailable)
}

// Len returns the number of keys in memory.
func (l *Limiter) Len() (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += s.lru.Len()
		s.mu.Unlock()
	}
	return n
}

// Sums returns the leased rates of all keys, in units a second, the units in hand, and those that Redis has not debited.
func (l *Limiter) Sums() (rate, held float64, owed int64) {
	now := l.clock.Now()
	l.each(func(e *entry) {
		r, tokens := e.Leased(now)
		rate, held, owed = rate+r, held+tokens, owed+e.Owes()
	})
	return rate, held, owed
}
