package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/runner"
)

// Limiter is one limit of a hub. It is safe for concurrent use.
type Limiter struct {
	hub   *Hub
	clock *clock.Clock // the hub's, a step nearer
	own   bool         // made by New: closes its hub
	cfg   Config
	plan  atomic.Pointer[account.Plan]
	// setting is held from the claim of a new limit to its rules: of two
	// SetLimit at once, the later one would have the claim and the earlier the
	// rules.
	setting  sync.Mutex
	store    *store
	fleet    fleet
	switches switches
	overflow overflow
	count    counters
	hist     *histograms // nil: nobody takes metrics

	closed    atomic.Bool
	done      chan struct{} // closed with it: who waits goes home
	closeOnce sync.Once
	ctx       context.Context // of the heartbeat; ends with Close
	cancel    context.CancelFunc
	stopBeat  chan struct{} // closed to end the heartbeat between two beats
	stopOnce  sync.Once
	beaten    chan struct{} // closed when the heartbeat has ended
	ready     chan struct{} // closed when two heartbeats were answered
	readyOnce sync.Once
	release   func() // of the identity
	denials   denials
}

var _ hybridlimit.Limiter = (*Limiter)(nil)

// New makes a limiter with a hub of its own; Config.Hub configures that. A
// Redis that cannot be reached is not an error: the limiter starts in
// fallback, says so in a log line, and goes over to Redis when it is there.
// The client stays the caller's to close, after the limiter.
func New(rdb redis.UniversalClient, limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	if err := errors.Join(runner.CheckClient(rdb),
		append(cfg.violations(limit), cfg.Hub.violations()...).Err("hybrid")); err != nil {
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

// Close stops decisions at once, settles nothing, and waits for every
// goroutine; a limiter made by New closes its hub. What is owed and not yet
// sent is lost and counted. Its name is free then. It is idempotent.
func (l *Limiter) Close() error {
	l.shut()
	if l.own {
		return l.hub.Close()
	}
	<-l.beaten
	l.writeOff()
	l.hub.forget(l)
	return nil
}

// Shutdown settles what is owed, then closes; a limiter made by New does so
// with its hub. When ctx ends first, or 5 s have passed and ctx has no
// deadline, what could not be paid is lost, counted, and reported in the error.
func (l *Limiter) Shutdown(ctx context.Context) error {
	if l.own {
		return l.hub.Shutdown(ctx)
	}
	l.stop()
	err := l.hub.settle(ctx, l)
	return errors.Join(err, l.Close())
}

// Ready waits until Redis has answered, scripts are loaded, and N has been
// measured: about one second. It is for readiness probes; a limiter decides
// before that.
func (l *Limiter) Ready(ctx context.Context) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	select {
	case <-l.ready:
		return nil
	case <-l.done:
		return hybridlimit.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("hybrid: limiter %q is not ready: %w", l.cfg.Name, ctx.Err())
	}
}

// stop refuses further decisions.
func (l *Limiter) stop() {
	l.closed.Store(true)
	l.hub.clock.Void()
}

// shut is stop, and lets go of those who wait and of the identity.
func (l *Limiter) shut() {
	l.stop()
	l.closeOnce.Do(func() {
		close(l.done)
		l.cancel()
		l.release()
	})
}

// Allow is AllowN with a cost of 1. It is written out: see common.
func (l *Limiter) Allow(ctx context.Context, key string) (res hybridlimit.Result, err error) {
	if e := l.store.get(key); e != nil {
		if r := e.plan.Load(); r.From != account.FromCall && l.common(e, r, 1, &res) {
			return res, nil
		}
	}
	return l.uncommon(ctx, key, 1)
}

// AllowN takes n units of key, all or none. Mostly it is a memory operation;
// where this process's part of the limit does not suffice it waits for Redis,
// for Config.MaxWait at most. Only then does ctx matter: when it ends first
// nothing is charged and its error is returned. An n above the burst is denied
// for ever; Remaining is the estimate from memory, or, of a key that this
// process does not know, from a message that takes nothing.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res hybridlimit.Result, err error) {
	// A key that is found was checked when it came in.
	if e := l.store.get(key); e != nil && n > 0 {
		if r := e.plan.Load(); r.From != account.FromCall && l.common(e, r, n, &res) {
			return res, nil
		}
	}
	return l.uncommon(ctx, key, n)
}

// uncommon is AllowN where the common path does not do.
func (l *Limiter) uncommon(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	if err := l.check(key, n); err != nil {
		return hybridlimit.Result{}, err
	}
	return l.slow(ctx, key, n, nil)
}

// check refuses a request that cannot be answered.
func (l *Limiter) check(key string, n int64) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	return hybridlimit.CheckRequest(key, n, l.cfg.MaxKeyBytes)
}

// common is the common path; it reports false where that does not do, and res
// means nothing then. What it decides is counted when the word is taken back, by
// its units: see drained. A word that is good says that the limiter is open, the
// rules are its last, and no switch decides.
//
// The answer is written in place, field by field, and before the word is
// changed. The atomic operation waits anyway until what was written before has
// reached the cache. Whoever copies an answer that was just written, in larger
// pieces than it was written in, waits for that too: it took as long as all the
// rest (BenchmarkAllow).
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
			next = w + uint64(n) // it counts what is denied
			res.Allowed, res.Granted, res.Remaining, res.Source = false, 0, 0, hybridlimit.SourceDenyCache
			res.RetryAfter = l.retryFromWord(e, r, n)
			if r.Window.Period == 0 { // resetAfter, without a call
				res.ResetAfter = r.Refilled(min(e.units(r, l.clock), float64(r.Burst)))
			} else {
				res.ResetAfter = l.resetAfter(r, e.left(r), e.ends.Load())
			}
			if l.switches.shadow.Load() {
				*res = l.shadowed(*res, n)
			}
		case units < n:
			return false
		default:
			left := min(e.units(r, l.clock)+float64(units), float64(r.Burst)) - float64(n)
			res.Allowed, res.Granted, res.Remaining, res.Source = true, n, max(0, int64(left+floatSlack)), account.Sources[kind]
			res.Shadowed, res.RetryAfter = false, 0
			if r.Window.Period == 0 { // resetAfter, without a call
				res.ResetAfter = r.Refilled(left)
			} else {
				res.ResetAfter = l.resetAfter(r, int64(left), e.ends.Load())
			}
		}
		if !e.word.CompareAndSwap(w, next) {
			continue
		}
		if n > 1 {
			l.count.words[kind].more.Add(n - 1)
		}
		return true
	}
}

// retryFromWord is a lower bound from the last tick: the rough clock is
// behind, by a tick in general, so that much is taken off.
func (l *Limiter) retryFromWord(e *entry, r *account.Plan, n int64) time.Duration {
	until := e.shut.Load()
	switch {
	case n == 1 || e.ends.Load() != 0:
	case until&1 == 0:
		until += (n - 1) * r.Bucket.Unit / r.Bucket.Refill * 1000
	default: // a turn: units may take longer
		e.lock()
		until = max(until, e.account.ProvedUntil(&account.Conditions{Bucket: r.Bucket, Window: r.Window}, n))
		e.unlock()
	}
	return max(time.Microsecond, time.Duration(until-l.clock.Rough()-int64(2*tick)))
}

// resetAfter is how long until nothing is used any more, by what is left, where
// negative is debt; ends is when the window is over, 0 where that is not known.
// The rough clock of windows is up to a tick behind, so it is that much more.
func (l *Limiter) resetAfter(r *account.Plan, remaining, ends int64) time.Duration {
	if period := time.Duration(r.Window.Period) * time.Microsecond; period > 0 {
		left := period
		if ends > 0 {
			if left = time.Duration(ends - l.hub.clock.Rough()); left <= 0 {
				left += period // the next one has just begun
			}
			left = max(0, min(period, left))
		}
		switch {
		case remaining >= r.Limit.Rate:
			return 0
		case r.Window.Sliding:
			return left + period // what is counted in this window fades in the next
		}
		return left + time.Duration((max(0, -remaining)+r.Limit.Rate-1)/r.Limit.Rate)*period // a debt begins the next
	}
	return r.Refilled(float64(min(remaining, r.Burst)))
}

// answer counts a decision, applies Shadow, and logs a denial: of every verb but
// AllowAll, which does so once for all its limits. Call it under no lock.
func (l *Limiter) answer(key string, res hybridlimit.Result, n int64) hybridlimit.Result {
	return l.answerUnder(nil, key, res, n)
}

// answerUnder is answer to a call that was decided under r.
func (l *Limiter) answerUnder(r *account.Plan, key string, res hybridlimit.Result, n int64) hybridlimit.Result {
	res = l.tally(res, n)
	l.logDenial(key, r, n, &res)
	return res
}

// tally counts a decision and applies Shadow.
func (l *Limiter) tally(res hybridlimit.Result, n int64) hybridlimit.Result {
	l.count.decided(res.Source, res.Allowed, n)
	return l.shadowed(res, n)
}

// shadowed lets pass what a shadow limit has denied.
func (l *Limiter) shadowed(res hybridlimit.Result, n int64) hybridlimit.Result {
	if l.switches.shadow.Load() && !res.Allowed {
		res.Allowed, res.Shadowed, res.Granted, res.RetryAfter = true, true, n, 0
	}
	return res
}

// place is where a key lives.
type place struct {
	plan *account.Plan // of this key's limit
	tag  int
	key  string // in Redis
}

// place finds a key's; callbacks of the user run here, under no lock.
func (l *Limiter) place(key string) (place, error) {
	at := place{plan: l.plan.Load()}
	if l.cfg.LimitFor != nil {
		if limit := l.cfg.LimitFor(key); limit != at.plan.Limit {
			if err := errors.Join(limit.Validate(), sameAlgorithm(limit, at.plan)); err != nil {
				return place{}, fmt.Errorf("hybrid: Config.LimitFor(%q): %w", key, err)
			}
			at.plan = account.NewPlan(limit)
			at.plan.From = account.FromConfig
		}
	}
	return l.slot(at, key), nil
}

// placeUnder is place under the limit that came with a call, if one did.
func (l *Limiter) placeUnder(key string, given *account.Plan) (place, error) {
	if given == nil {
		return l.place(key)
	}
	return l.slot(place{plan: given}, key), nil
}

// slot adds where in Redis a key lives.
func (l *Limiter) slot(at place, key string) place {
	subject := key
	if l.cfg.Subject != nil {
		subject = l.cfg.Subject(key)
	}
	at.tag = l.hub.names.Tag(subject)
	at.key = l.hub.names.State(at.tag, l.cfg.Name, key)
	return at
}

// lazily is when a sync that can wait for T should go: on a grid of T/4, so
// that many keys share a message.
func (l *Limiter) lazily(now time.Time) time.Time {
	at, grid := l.hub.clock.At(now)+int64(l.cfg.SyncInterval), int64(l.cfg.SyncInterval)/4
	if grid > 0 {
		at -= at % grid
	}
	return l.hub.clock.Time(at)
}

// conditions is what an event of a key needs to know now, but for what depends on its tag: see entry.conditions.
func (l *Limiter) conditions(p *account.Plan, now int64) account.Conditions {
	c := account.Conditions{
		Bucket: p.Bucket, Window: p.Window, Limit: p.Limit, Mode: account.Mode(l.cfg.Mode),
		N: l.fleet.Size(), Every: l.every(), Adaptive: l.cfg.SyncEvery == 0, Interval: int64(l.cfg.SyncInterval),
		RTT: int64(l.hub.engine.RTT()), Tick: int64(tick), MaxWait: int64(l.cfg.MaxWait),
		RelookIn: l.hub.jitter(account.MaxView), Closing: l.closed.Load(), Behind: l.hub.engine.Behind(),
	}
	if l.fleet.Known(now) {
		c.Credit = l.credit(p, c.N)
	}
	c.Blind = account.MayBeFull(p.Full, max(l.born(), p.Began), l.store.lastEvict.Load(), now)
	c.Fallback = l.share(p, c.N)
	return c
}

// born is when the limiter was made, on the hub's clock.
func (l *Limiter) born() int64 { return l.count.born }

// every is K, or the least that an adaptive one is.
func (l *Limiter) every() int64 {
	if l.cfg.SyncEvery == 0 {
		return defaultSyncEvery
	}
	return l.cfg.SyncEvery
}

// givesCredit says whether the mode has credit at all.
func (l *Limiter) givesCredit() bool {
	return l.cfg.Mode == ModeDeferred || l.cfg.Mode == ModeAuto && l.cfg.Overshoot > 0
}

// credit is C in a fleet of n.
func (l *Limiter) credit(p *account.Plan, n int64) int64 {
	return p.Credit(account.Mode(l.cfg.Mode), l.cfg.Overshoot, l.every(), n)
}

// share is the size of the fallback bucket of a key in a fleet of n.
func (l *Limiter) share(p *account.Plan, n int64) account.Fallback {
	return p.Fallback(account.Policy(l.cfg.Fallback), l.cfg.FallbackFloor, n)
}
