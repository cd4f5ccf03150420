package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/internal/waiting"
)

// Limiter applies one limit of a hub. It is safe for concurrent use.
type Limiter struct {
	*family
	clock   *clock.Clock // the hub's; a copy of the pointer saves one load
	cfg     Config
	control *control.View // which limit, mode and switch is in force
	store   *store
	count   tell.Counts
	hist    *tell.Histograms // nil: no metrics provider
	denials tell.Denials
	lines   waiting.Lines // of Wait
}

// family is the part of a limiter that its classes share.
type family struct {
	hub      *Hub
	flight   *ConcurrencyLimiter // that this limiter carries; nil: it limits a rate
	own      bool                // made by New: Close also closes the hub
	classes  classes.Set
	views    []*Limiter // one for each class; the first is the limiter itself
	fleet    fleet
	shares   *fallback.Shares
	overflow *sometimes.Line // about keys that find no memory

	done      chan struct{} // closed by Close: waiting calls return
	closeOnce sync.Once
	left      atomic.Bool   // heartbeats no longer count this limiter
	ready     chan struct{} // closed when N is known, from two heartbeats or from HubConfig.FleetSize, and one was answered
	readyOnce sync.Once
	release   func() // releases the identity
	bookings  bookings
}

// each calls f for every entry of all classes, outside the locks of the shards.
func (m *family) each(f func(*entry)) {
	for _, v := range m.views {
		v.store.each(f)
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
// are lost, and counted. Leased units are not given back: Shutdown does that. A limiter made by New also closes its hub.
// The limiter's name becomes free. Close is idempotent.
func (l *Limiter) Close() error {
	l.shut()
	if l.own {
		return l.hub.Close()
	}
	for _, v := range l.views {
		v.writeOff()
	}
	l.hub.forget(l)
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
	err := l.hub.settle(ctx, l)
	return errors.Join(err, l.Close())
}

// Ready waits until Redis has answered, the scripts are loaded, and the fleet size N is known. Ready is for readiness
// probes: a limiter also decides before it is ready.
//
// Without HubConfig.FleetSize, N is known after two heartbeats, about a second apart, and Ready waits for these until ctx
// ends. With it, Ready waits for one answer of Redis, for at most 400 ms. Its error is then ErrUnavailable: the limiter
// decides by Config.Fallback, with a share for a fleet of FleetSize.
func (l *Limiter) Ready(ctx context.Context) error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	var patience <-chan time.Time
	if l.fleet.Hint > 0 {
		timer := time.NewTimer(readyWithin)
		defer timer.Stop()
		patience = timer.C
	}
	select {
	case <-l.ready:
		return nil
	case <-l.done:
		return hybridlimit.ErrClosed
	case <-patience:
		return fmt.Errorf("hybrid: limiter %q is not ready: %w: Redis has not answered within %v; the limiter decides by its fallback, for %d processes",
			l.cfg.Name, hybridlimit.ErrUnavailable, readyWithin, l.fleet.Hint)
	case <-ctx.Done():
		return fmt.Errorf("hybrid: limiter %q is not ready: %w", l.cfg.Name, ctx.Err())
	}
}

// readyWithin bounds Ready when the fleet size is given.
const readyWithin = 400 * time.Millisecond

// stop makes all further calls fail with ErrClosed.
func (l *Limiter) stop() {
	l.control.Closed.Store(true)
	l.hub.clock.Void()
}

// shut stops the limiter as stop does, releases waiting calls, and gives up the identity.
func (l *Limiter) shut() {
	l.stop()
	l.closeOnce.Do(func() {
		close(l.done)
		l.release()
	})
	l.bookings.close()
}

// Allow is AllowN with a cost of 1. The code is repeated rather than called, because it is the fast path: see common.
func (l *Limiter) Allow(ctx context.Context, key string) (res hybridlimit.Result, err error) {
	if e := l.store.get(key); e != nil {
		if r := e.plan.Load(); r.From != account.FromCall && l.common(e, r, 1, &res) {
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
	if e := l.store.get(key); e != nil && n > 0 {
		if r := e.plan.Load(); r.From != account.FromCall && l.common(e, r, n, &res) {
			return res, nil
		}
	}
	return l.uncommon(ctx, key, n)
}

// uncommon is AllowN off the fast path.
func (l *Limiter) uncommon(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.check(key, n); err != nil {
		return hybridlimit.Result{}, err
	}
	return l.slow(ctx, key, n, nil)
}

// check returns an error for a request that cannot be answered.
func (l *Limiter) check(key string, n int64) error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	return hybridlimit.CheckRequest(key, n, l.cfg.MaxKeyBytes)
}

// common is the fast path. It returns false when the slow path must decide; res has no meaning then. Its decisions
// are counted later, when the budget is taken back: see drained. A valid budget implies that the limiter is open,
// that the entry's plan is current, and that no switch decides.
//
// The answer is written in place, field by field, before the atomic operation on the budget. That operation waits
// until earlier writes have reached the cache. The rejected alternative copies the answer in pieces larger than the
// writes. Such a copy waits for the cache too, and took as long as the rest of the call (BenchmarkAllow).
func (l *Limiter) common(e *entry, r *account.Plan, n int64, res *hybridlimit.Result) bool {
	if n > r.Burst || n > account.MaxUnits {
		return false
	}
	epoch := l.clock.Epoch()
	res.Limit, res.Policy = r.Burst, l.cfg.Name
	for {
		w := e.word.Load()
		if account.Over(w, epoch) {
			return false
		}
		units, kind := account.UnitsOf(w), account.KindOf(w)
		next := w - uint64(n)
		switch {
		case kind == account.DenyBudget:
			if units+n > account.MaxUnits {
				return false
			}
			next = w + uint64(n) // a deny budget counts the denied units
			res.Allowed, res.Granted, res.Remaining, res.Source = false, 0, 0, hybridlimit.SourceDenyCache
			res.RetryAfter = l.retryFromWord(e, r, n)
			if r.Window.Period == 0 { // resetAfter, inlined
				left := e.units(r, l.clock)
				if left >= float64(n) { // see fill
					left = float64(n - 1)
				}
				res.ResetAfter = r.Refilled(left)
			} else {
				res.ResetAfter = l.resetAfter(r, min(e.left(r), n-1), e.ends.Load())
			}
			if l.control.Shadow.Load() {
				*res = l.control.Shadowed(*res, n)
			}
		case units < n:
			return false
		default:
			left := min(e.units(r, l.clock)+float64(units), float64(r.Burst)) - float64(n)
			res.Allowed, res.Granted, res.Remaining, res.Source = true, n, max(0, int64(left+floatSlack)), account.Sources[kind]
			res.Shadowed, res.RetryAfter = false, 0
			if r.Window.Period == 0 { // resetAfter, inlined
				res.ResetAfter = r.Refilled(left)
			} else {
				res.ResetAfter = l.resetAfter(r, int64(left), e.ends.Load())
			}
		}
		if !e.word.CompareAndSwap(w, next) {
			continue
		}
		if n > 1 {
			l.count.Words[kind].More.Add(n - 1)
		}
		return true
	}
}

// retryFromWord returns RetryAfter, as of the last tick. The rough clock is behind, in general by up to a tick, so the
// result is up to a tick too long. It is never too short, so that a caller who waits for it is not denied again.
func (l *Limiter) retryFromWord(e *entry, r *account.Plan, n int64) time.Duration {
	until := e.shut.Load()
	switch {
	case n == 1 || e.ends.Load() != 0 && !r.Window.Sliding:
	case until&1 == 0 && r.Window.Period == 0:
		until += ((n-1)*r.Bucket.Unit + r.Bucket.Refill - 1) / r.Bucket.Refill * 1000
	default: // several units may take longer than the turn of this process, or than one unit of a window
		e.lock()
		until = max(until, e.account.RetryAt(&account.Conditions{Bucket: r.Bucket, Window: r.Window, Floor: r.Floor}, n))
		e.unlock()
	}
	return max(time.Microsecond, time.Duration(until-l.clock.Rough()))
}

// resetAfter returns the time until no unit counts as used. A negative remaining is debt. ends is the end of the
// window, or the time at which a log is empty; 0: not known. Both are measured by the rough clock, which is up to a tick
// behind, so their result is up to a tick too long.
func (l *Limiter) resetAfter(r *account.Plan, remaining, ends int64) time.Duration {
	if r.Kind == algo.KindLog {
		switch {
		case remaining >= r.Burst:
			return 0
		case ends > 0:
			return max(0, min(r.Limit.Period, time.Duration(ends-l.hub.clock.Rough())))
		}
		return r.Limit.Period // at most
	}
	if period := time.Duration(r.Window.Period) * time.Microsecond; period > 0 {
		left := period
		if ends > 0 {
			if left = time.Duration(ends - l.hub.clock.Rough()); left <= 0 {
				left += period // the next window has just begun
			}
			left = max(0, min(period, left))
		}
		switch {
		case remaining >= r.Burst:
			return 0
		case r.Window.Sliding:
			return left + period // the counts of this window fade during the next one
		}
		return left + time.Duration((max(0, -remaining-r.Floor)+r.Limit.Rate-1)/r.Limit.Rate)*period // a debt uses up windows that follow
	}
	return r.Refilled(float64(min(remaining, r.Burst)))
}

// answer counts a decision, applies Shadow, and logs a denial. All verbs use it except AllowAll, which does the same
// once for all its limits. Call it without any lock.
func (l *Limiter) answer(key string, res hybridlimit.Result, n int64) hybridlimit.Result {
	return l.answerUnder(nil, key, res, n)
}

// answerUnder is answer for a call that was decided under r.
func (l *Limiter) answerUnder(r *account.Plan, key string, res hybridlimit.Result, n int64) hybridlimit.Result {
	res = l.tally(res, n)
	l.logDenial(key, r, n, &res)
	return res
}

// tally counts a decision and applies Shadow.
func (l *Limiter) tally(res hybridlimit.Result, n int64) hybridlimit.Result {
	l.count.Decided(res.Source, res.Allowed, n)
	return l.control.Shadowed(res, n)
}

// place is where a key lives.
type place struct {
	plan *account.Plan // of this key's limit
	tag  int
	key  string // the caller's
	from control.Question
}

// inRedis returns the key in Redis.
func (l *Limiter) inRedis(at place) string { return l.hub.names.State(at.tag, l.cfg.Name, at.key) }

// place returns the place of a key. It runs callbacks of the user, so call it without any lock.
func (l *Limiter) place(key string) (place, error) {
	plan, from, err := l.control.Ask(key)
	if err != nil {
		return place{}, err
	}
	return l.slot(place{plan: plan, from: from}, key), nil
}

// placeUnder is place under the limit of the call, if the call brought one.
func (l *Limiter) placeUnder(key string, given *account.Plan) (place, error) {
	if given == nil {
		return l.place(key)
	}
	return l.slot(place{plan: given}, key), nil
}

// slot adds the key and its tag.
func (l *Limiter) slot(at place, key string) place {
	subject := key
	if l.cfg.Subject != nil {
		subject = l.cfg.Subject(key)
	}
	at.key, at.tag = key, l.hub.names.Tag(subject)
	return at
}

// lazily returns the due time of a sync that can wait for T. Due times lie on a grid of T/2, so that many keys share
// a message.
func (l *Limiter) lazily(now time.Time) time.Time {
	at := l.hub.clock.At(now) + int64(l.cfg.SyncInterval)
	return l.hub.clock.Time(at - at%l.grid())
}

// grid returns the ns between due times.
func (l *Limiter) grid() int64 { return max(1, int64(l.cfg.SyncInterval)/2) }

// conditions returns the conditions of an event of a key. entry.conditions adds the conditions that depend on the tag.
func (l *Limiter) conditions(p *account.Plan, now int64) (c account.Conditions) {
	l.setConditions(&c, p, now)
	return c
}

// setConditions is conditions for zero Conditions in place. It sets field by field, because a composite literal would be
// made elsewhere and copied.
func (l *Limiter) setConditions(c *account.Conditions, p *account.Plan, now int64) {
	l.hub.heart.pace.event(p.Full)
	c.Bucket, c.Window, c.Floor, c.Limit = p.Bucket, p.Window, p.Floor, p.Limit
	c.Mode, c.MaxWait, c.Interval = l.control.Mode(), int64(l.cfg.MaxWait), int64(l.cfg.SyncInterval)
	c.N, c.Every, c.Adaptive = l.fleet.Accounts(), l.every(), l.cfg.SyncEvery == 0
	c.RTT, c.Tick = int64(l.hub.engine.RTT()), int64(tick)
	c.RelookIn = l.hub.jitter(account.MaxView)
	c.Closing, c.Behind = l.control.Closed.Load(), l.hub.engine.Behind()
	if l.fleet.Known(now) {
		c.Credit = l.credit(p, c.N)
	}
	c.Blind = account.MayBeFull(p.Full, max(l.born(), p.Began), l.store.lastEvict.Load(), now)
	c.Fallback = l.share(p, l.fleet.Size())
}

// born returns the time at which the limiter was made, on the hub's clock.
func (l *Limiter) born() int64 { return l.count.Born }

// every returns K. For an adaptive K it returns the smallest value that K can have.
func (l *Limiter) every() int64 {
	if l.cfg.SyncEvery == 0 {
		return defaultSyncEvery
	}
	return l.cfg.SyncEvery
}

// givesCredit reports whether the mode uses credit at all.
func (l *Limiter) givesCredit() bool {
	mode := l.Mode()
	return mode == ModeDeferred || mode == ModeAuto && l.cfg.Overshoot > 0
}

// credit returns C in a fleet of n accounts.
func (l *Limiter) credit(p *account.Plan, n int64) int64 {
	return p.Credit(l.control.Mode(), l.cfg.Overshoot, l.every(), n)
}

// share returns the size of a key's share in a fleet of n processes.
func (l *Limiter) share(p *account.Plan, n int64) account.Fallback {
	return p.Fallback(l.control.Fallback(), l.cfg.FallbackFloor, n)
}

// limitFor returns the limit of a key, as a call without a limit would get it.
func (l *Limiter) limitFor(key string) hybridlimit.Limit {
	limit, _ := l.control.LimitFor(key)
	return limit
}
