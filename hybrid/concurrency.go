package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/inflight"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
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
	*base
	in *inflight.Limiter
}

var (
	_ hybridlimit.Acquirer = (*ConcurrencyLimiter)(nil)
	_ adapter.Describer    = (*ConcurrencyLimiter)(nil)
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
	cfg = cfg.withDefaults()
	b, views, err := h.prepare(limit, control.Config{
		Name: cfg.Name, InFlight: true, Mode: account.Mode(cfg.Mode), Fallback: fallback.Kind(cfg.Fallback), Shadow: cfg.Shadow, LimitFor: cfg.LimitFor,
	}, classes.Of(nil), control.Hooks{
		VoidKeys: func() {}, Resumed: func() {}, Relimited: h.permits.Changed, Switched: h.permits.LookAgain,
	})
	if err != nil {
		return nil, err
	}
	b.maxKey, b.party.Sized = cfg.MaxKeyBytes, func(int64) {}
	b.calls = &ConcurrencyLimiter{base: b, in: h.permits.New(inflight.Config{
		Name: cfg.Name, Exact: cfg.Mode == ModeExact, MaxWait: cfg.MaxWait, MaxKeys: int64(cfg.MaxKeys), MaxKeyBytes: cfg.MaxKeyBytes,
		Floor: cfg.FallbackFloor, TagBy: cfg.TagBy,
	}, views[0], b.party, func() { h.forget(b) })}
	if err := h.enter(b); err != nil {
		return nil, err
	}
	return b.calls, nil
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
	if held := l.in.Take(ctx, key, 1, &res); held != nil {
		return hybridlimit.NewPermit(held, 1), res, nil
	}
	return l.in.Acquire(ctx, key, 1)
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
	if held := l.in.Take(ctx, key, n, &res); held != nil {
		return hybridlimit.NewPermit(held, n), res, nil
	}
	return l.in.Acquire(ctx, key, n)
}

// Peek returns this process's knowledge of a key: Allowed means that it holds a permit that no call uses, or that Redis
// had a free one at the last answer. Peek acquires nothing, sends nothing and fails as Acquire does.
func (l *ConcurrencyLimiter) Peek(_ context.Context, key string) (hybridlimit.Result, error) {
	return l.in.Peek(key)
}

// Running returns the number of permits of a key that calls of this process use. It works after Close too.
func (l *ConcurrencyLimiter) Running(key string) int64 { return l.in.Running(key) }

// Len returns the number of keys in memory: those with permits, with running or
// waiting calls, or with a message of the last ten seconds.
func (l *ConcurrencyLimiter) Len() int { return l.in.Len() }

// Reset makes Redis forget the permits of a key in all processes, and learn them again from their running calls. While
// it learns, for 3 s, the fallback decides. It is for a key whose permits in Redis are wrong. Running calls go on, and
// keep their permits. Reset waits for the answer, at most for HubConfig.SyncTimeout. Without one it returns
// ErrUnavailable, and Redis resets the key when it can be reached.
func (l *ConcurrencyLimiter) Reset(ctx context.Context, key string) error {
	return l.in.Reset(ctx, key)
}

// Close denies all further calls with hybridlimit.ErrClosed, those that wait too. It returns at once. Permits of
// running calls stay valid: the hub tells them to the fleet until they are released, and then the limiter's name is
// free. Hub.Close ends that: the fleet then gives the permits of calls that still run to others, about 3 s after the
// first call that they refuse. Close is idempotent, and its error is always nil.
func (l *ConcurrencyLimiter) Close() error {
	l.shut()
	l.in.Close()
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
	return errors.Join(l.Close(), l.hub.permits.Drain(ctx, l.in))
}

// ConcurrencyConfig configures one limiter of calls in flight. The zero value of every field except Name is usable.
type ConcurrencyConfig struct {
	// Name names the limiter, [A-Za-z0-9_.-]+. Required. Processes that use the same Redis, HubConfig.Prefix and Name
	// share the limit. A hub has one limiter of a name, whether it limits a rate or calls in flight.
	Name string
	// Mode is ModeAuto or ModeExact. With ModeAuto, a process keeps permits for calls that will come soon, so most
	// calls need no message. With ModeExact, a permit without a call goes back at once, and each call needs a message.
	// Zero: ModeAuto.
	Mode Mode
	// MaxWait is the longest time for which a call waits for a permit that other calls use. Calls of one key in one
	// process are served in the order in which they came. hybridlimit.Never: as long as ctx. Zero: a call is denied by
	// the first answer of Redis that has no permit for it. A call waits for that answer for at most
	// HubConfig.SyncTimeout, also if MaxWait is shorter.
	MaxWait time.Duration
	// MaxKeys is the largest number of keys with permits, running calls or waiting calls in this process. The first
	// call of one key more fails with hybridlimit.ErrTooManyKeys. No key with a running call is evicted. Zero: 100 000.
	MaxKeys int
	// MaxKeyBytes is the length of the longest valid key, in bytes. Zero: 512.
	MaxKeyBytes int
	// Fallback decides while Redis does not answer. FallbackShare gives each process limit/N permits of a key, rounded
	// down, less those that its running calls use. Zero: FallbackShare.
	Fallback Fallback
	// FallbackFloor is the least number of permits that FallbackShare gives a process while Redis does not answer, even
	// if limit/N is smaller. So without Redis at most max(limit, N·FallbackFloor) calls of a key run. A log line says
	// when that is more than the limit. Zero: 1. Negative: none.
	FallbackFloor int64
	// Shadow makes the limiter decide and count, but deny no call. A call that it
	// would have denied runs without a permit.
	Shadow bool
	// LimitFor returns the limit of a key: of calls in flight, Unlimited or Blocked. It is called for each call, under
	// no lock, and must be safe for concurrent use. An answer that is the limiter's limit means that the key follows
	// it. A limit that Concurrency would refuse is an error of the call (ErrInvalid). A panic of LimitFor goes to the
	// caller. Nil: one limit for all keys.
	LimitFor func(key string) hybridlimit.Limit
	// TagBy maps a key to the text that decides its tag. Keys with one text
	// share a tag, and so a cluster slot. Nil: the key itself.
	TagBy func(key string) string
}

func (c ConcurrencyConfig) withDefaults() ConcurrencyConfig {
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.FallbackFloor == 0 {
		c.FallbackFloor = 1
	}
	return c
}

func (c ConcurrencyConfig) violations(limit hybridlimit.Limit) adapter.Violations {
	var bad adapter.Violations
	bad.AddLimit(limit)
	if !adapter.CheckName(c.Name) {
		bad.Add("ConcurrencyConfig.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	}
	bad.AddIf(c.Mode != ModeAuto && c.Mode != ModeExact, "ConcurrencyConfig.Mode", c.Mode, "must be auto or exact")
	bad.AddIf(c.MaxWait < 0, "ConcurrencyConfig.MaxWait", c.MaxWait, "must not be negative")
	bad.AddIf(c.MaxKeys < 0, "ConcurrencyConfig.MaxKeys", c.MaxKeys, "must not be negative")
	bad.AddIf(c.MaxKeyBytes < 0, "ConcurrencyConfig.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	bad.AddIf(!fallback.Kind(c.Fallback).Valid(), "ConcurrencyConfig.Fallback", c.Fallback, "is not a fallback")
	if c.FallbackFloor > limit.BurstSize() && !account.Static(limit) {
		bad.Add("ConcurrencyConfig.FallbackFloor", c.FallbackFloor, "must not exceed the limit")
	}
	return bad
}

// counted returns ErrUnsupported for the limit of a rate.
func counted(limit hybridlimit.Limit) error {
	if limit.Algorithm == hybridlimit.AlgConcurrent || account.Static(limit) {
		return nil
	}
	return fmt.Errorf("hybrid: %w: a limiter of calls in flight has no rate (%v): use Limiter", hybridlimit.ErrUnsupported, limit)
}

// Policy returns the limit that is enforced on key. It calls ConcurrencyConfig.LimitFor.
func (l *ConcurrencyLimiter) Policy(key string) hybridlimit.Policy {
	limit, _ := l.control.LimitFor(key)
	return hybridlimit.Policy{Name: l.name, Limit: limit}
}
