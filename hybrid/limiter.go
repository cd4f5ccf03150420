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
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// Limiter is one limit of a hub. It is safe for concurrent use.
type Limiter struct {
	hub   *Hub
	clock *clock.Clock // the hub's, a step nearer
	own   bool         // made by New: closes its hub
	cfg   Config
	rules atomic.Pointer[rules]
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
		if r := e.rules.Load(); r.from != fromCall && l.common(e, r, 1, &res) {
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
		if r := e.rules.Load(); r.from != fromCall && l.common(e, r, n, &res) {
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
func (l *Limiter) common(e *entry, r *rules, n int64, res *hybridlimit.Result) bool {
	if n > r.burst || n > maxWordUnits {
		return false
	}
	epoch := l.clock.Epoch()
	res.Limit, res.Policy = r.burst, l.cfg.Name
	for {
		w := e.word.Load()
		if past(w, epoch) {
			return false
		}
		units, kind := wordUnits(w), wordKindOf(w)
		next := w - uint64(n)
		switch {
		case kind == wordDeny:
			if units+n > maxWordUnits {
				return false
			}
			next = w + uint64(n) // it counts what is denied
			res.Allowed, res.Granted, res.Remaining, res.Source = false, 0, 0, hybridlimit.SourceDenyCache
			res.RetryAfter = l.retryFromWord(e, r, n)
			if r.Window.Period == 0 { // resetAfter, without a call
				res.ResetAfter = r.refilled(min(e.units(r, l.clock), float64(r.burst)))
			} else {
				res.ResetAfter = l.resetAfter(r, e.left(r), e.ends.Load())
			}
			if l.switches.shadow.Load() {
				*res = l.shadowed(*res, n)
			}
		case units < n:
			return false
		default:
			left := min(e.units(r, l.clock)+float64(units), float64(r.burst)) - float64(n)
			res.Allowed, res.Granted, res.Remaining, res.Source = true, n, max(0, int64(left+floatSlack)), wordSources[kind]
			res.Shadowed, res.RetryAfter = false, 0
			if r.Window.Period == 0 { // resetAfter, without a call
				res.ResetAfter = r.refilled(left)
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
func (l *Limiter) retryFromWord(e *entry, r *rules, n int64) time.Duration {
	until := e.shut.Load()
	switch {
	case n == 1 || e.ends.Load() != 0:
	case until&1 == 0:
		until += (n - 1) * r.Bucket.Unit / r.Bucket.Refill * 1000
	default: // a turn: units may take longer
		e.lock()
		until = max(until, e.state.provedUntil(&terms{bucket: r.Bucket, window: r.Window}, n))
		e.unlock()
	}
	return max(time.Microsecond, time.Duration(until-l.clock.Rough()-int64(2*tick)))
}

// resetAfter is how long until nothing is used any more, by what is left, where
// negative is debt; ends is when the window is over, 0 where that is not known.
// The rough clock of windows is up to a tick behind, so it is that much more.
func (l *Limiter) resetAfter(r *rules, remaining, ends int64) time.Duration {
	if period := time.Duration(r.Window.Period) * time.Microsecond; period > 0 {
		left := period
		if ends > 0 {
			if left = time.Duration(ends - l.hub.clock.Rough()); left <= 0 {
				left += period // the next one has just begun
			}
			left = max(0, min(period, left))
		}
		switch {
		case remaining >= r.limit.Rate:
			return 0
		case r.Window.Sliding:
			return left + period // what is counted in this window fades in the next
		}
		return left + time.Duration((max(0, -remaining)+r.limit.Rate-1)/r.limit.Rate)*period // a debt begins the next
	}
	return r.refilled(float64(min(remaining, r.burst)))
}

// answer counts a decision, applies Shadow, and logs a denial: of every verb but
// AllowAll, which does so once for all its limits. Call it under no lock.
func (l *Limiter) answer(key string, res hybridlimit.Result, n int64) hybridlimit.Result {
	return l.answerUnder(nil, key, res, n)
}

// answerUnder is answer to a call that was decided under r.
func (l *Limiter) answerUnder(r *rules, key string, res hybridlimit.Result, n int64) hybridlimit.Result {
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
	rules *rules // of this key's limit
	tag   int
	key   string // in Redis
}

// place finds a key's; callbacks of the user run here, under no lock.
func (l *Limiter) place(key string) (place, error) {
	at := place{rules: l.rules.Load()}
	if l.cfg.LimitFor != nil {
		if limit := l.cfg.LimitFor(key); limit != at.rules.limit {
			if err := errors.Join(limit.Validate(), sameAlgorithm(limit, at.rules)); err != nil {
				return place{}, fmt.Errorf("hybrid: Config.LimitFor(%q): %w", key, err)
			}
			at.rules = newRules(limit)
			at.rules.from = fromConfig
		}
	}
	return l.slot(at, key), nil
}

// placeUnder is place under the limit that came with a call, if one did.
func (l *Limiter) placeUnder(key string, given *rules) (place, error) {
	if given == nil {
		return l.place(key)
	}
	return l.slot(place{rules: given}, key), nil
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

// terms is what the step needs to know now.
func (l *Limiter) terms(r *rules, now int64) terms {
	t := terms{
		bucket: r.Bucket, window: r.Window, limit: r.limit, mode: l.cfg.Mode,
		n: l.fleet.size(), every: l.every(), adaptive: l.cfg.SyncEvery == 0, interval: int64(l.cfg.SyncInterval),
		rtt: int64(l.hub.engine.RTT()), tick: int64(tick), maxWait: int64(l.cfg.MaxWait),
		relookIn: l.hub.jitter(maxLookAgain), closing: l.closed.Load(), behind: l.hub.engine.Behind(),
	}
	if l.fleet.known(now) {
		t.credit = l.credit(r, t.n)
	}
	t.blind = mayBeFull(r.full, max(l.born(), r.began), l.store.lastEvict.Load(), now)
	t.share = l.shareTerms(r, t.n)
	return t
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

// credit is C in a fleet of n: rule 4.
func (l *Limiter) credit(r *rules, n int64) int64 {
	burst, others := r.limit.BurstSize(), max(n-1, 1)
	switch {
	case r.Bucket.Queue: // only Redis knows when a call is served
	case l.cfg.Mode == ModeAuto:
		return int64(l.cfg.Overshoot*float64(burst)) / others
	case l.cfg.Mode == ModeDeferred:
		return min(l.every(), burst/others)
	}
	return 0
}

func (l *Limiter) shareTerms(r *rules, n int64) shareTerms {
	burst := float64(r.limit.BurstSize())
	t := shareTerms{policy: l.cfg.Fallback, cap: burst, perNs: float64(r.limit.Rate) / float64(r.limit.Period), period: r.Window.Period * 1000}
	if t.policy == FallbackShare {
		floor := min(float64(l.cfg.FallbackFloor), burst) // a key's own limit may be below it
		t.cap = max(burst/float64(n), floor)
		t.perNs = max(t.perNs/float64(n), floor/float64(r.full))
	}
	return t
}

var _ ratesync.Item = (*entry)(nil)
