package hybrid

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/leased"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/classes"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// RateLeaseLimiter limits the rate of hot keys in a large fleet with few messages, also if the burst is short. Make one
// with Hub.RateLeases. It is safe for concurrent use.
//
// Redis gives each process a part of the rate for four seconds, by the calls that it had. The process admits calls from
// a bucket of that rate. A key costs at most about one op per process and second, at any load: docs/lab has the figures,
// and docs/choosing.md says for which fleets a Limiter is better. internal/ratelease has the protocol and its proof.
//
// The fleet admits at most Burst + rate·t in any time t, as a token bucket does, except in these cases:
//
//   - the fallback decides (Source is SourceFallback), because Redis does not answer. A process goes on with its leased
//     rate for up to four seconds before;
//   - Redis loses its data, or its clock is put forward: then up to one Burst more, and up to four seconds of the rate
//     for leases that Redis does not know of. After a loss, the processes tell it of most leases;
//   - processes have different limits: for four seconds after a change, leases are of the old one.
//
// A lower bound holds too: what an idle process has is back within four seconds, and what a process had that has ended
// without Shutdown within eight. A change of the load is followed within some seconds: a process whose calls begin
// suddenly may wait for a part of the rate for that long.
//
// With a burst below two units per process, no rate is leased, and each admitted unit costs one or two ops.
type RateLeaseLimiter struct {
	*base
	in *leased.Limiter
}

var (
	_ hybridlimit.Limiter = (*RateLeaseLimiter)(nil)
	_ adapter.Describer   = (*RateLeaseLimiter)(nil)
)

// RateLeaseConfig configures one limiter of leased rates. The zero value of every field except Name is usable.
type RateLeaseConfig struct {
	// Name names the limiter, [A-Za-z0-9_.-]+. Required. Processes that lease rates with the same Redis, HubConfig.Prefix
	// and Name share the limit; a Limiter, or one of package global, has a state of its own. A hub has one limiter of a
	// name, of whatever type.
	Name string
	// MaxWait bounds the time for which a call waits for Redis: the first call for a key, and a call without units in
	// hand while the bucket in Redis has some. Then the fallback decides. Zero: 20 ms.
	MaxWait time.Duration
	// MaxKeys bounds the number of keys in memory. A new key replaces the one that was used least recently, whose lease
	// ends by itself. Zero: 100 000.
	MaxKeys int
	// MaxKeyBytes is the length of the longest valid key, in bytes. Zero: 512.
	MaxKeyBytes int
	// Fallback decides while Redis does not answer. Zero: FallbackShare.
	Fallback Fallback
	// FallbackFloor is the least burst of FallbackShare, in units: see Config.FallbackFloor. Below 1: 1.
	FallbackFloor int64
	// Shadow makes the limiter decide and count, but deny no call.
	Shadow bool
	// LimitFor returns the limit of a key: a token bucket or a leaky bucket as the limiter has, Unlimited or Blocked. It
	// is called for each call, under no lock, and must be safe for concurrent use. An answer that is the limiter's limit
	// means that the key follows it. A limit that RateLeases would refuse is an error of the call (ErrInvalid). Nil: one
	// limit for all keys.
	LimitFor func(key string) hybridlimit.Limit
	// TagBy maps a key to the text that decides its tag. Keys with one text share a tag, and so a cluster slot. Nil: the
	// key itself.
	TagBy func(key string) string
}

func (c RateLeaseConfig) withDefaults() RateLeaseConfig {
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	c.FallbackFloor = max(c.FallbackFloor, 1)
	return c
}

func (c RateLeaseConfig) violations(limit hybridlimit.Limit) adapter.Violations {
	var bad adapter.Violations
	bad.AddLimit(limit)
	if len(bad) == 0 && !account.Static(limit) {
		control.AddLeased(&bad, "Limit", limit)
	}
	bad.AddIf(!adapter.CheckName(c.Name), "RateLeaseConfig.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(c.MaxWait < 0, "RateLeaseConfig.MaxWait", c.MaxWait, "must not be negative")
	bad.AddIf(c.MaxKeys < 0, "RateLeaseConfig.MaxKeys", c.MaxKeys, "must not be negative")
	bad.AddIf(c.MaxKeyBytes < 0, "RateLeaseConfig.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	bad.AddIf(!fallback.Kind(c.Fallback).Valid(), "RateLeaseConfig.Fallback", c.Fallback, "is not a fallback")
	if c.FallbackFloor > 1 && c.FallbackFloor > limit.BurstSize() {
		bad.Add("RateLeaseConfig.FallbackFloor", c.FallbackFloor, "must not exceed the burst")
	}
	return bad
}

// RateLeases adds a limiter of leased rates to the hub: of a token bucket, a leaky bucket as a meter, Unlimited or
// Blocked, with a rate and a burst of at most 10⁹ units (a second). It is counted in the hub's heartbeat. The names of
// all limiters of a hub are different. A hub with such a limiter has one goroutine more for each tag with a message in
// flight.
//
// The error is a *hybridlimit.InvalidError with all violations of limit and cfg, or wraps hybridlimit.ErrClosed.
func (h *Hub) RateLeases(limit hybridlimit.Limit, cfg RateLeaseConfig) (*RateLeaseLimiter, error) {
	if err := cfg.violations(limit).Err("hybrid"); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	b, views, err := h.prepare(limit, control.Config{
		Name: cfg.Name, Leased: true, Mode: account.ModeStrict, Fallback: fallback.Kind(cfg.Fallback), FallbackFloor: cfg.FallbackFloor,
		Shadow: cfg.Shadow, LimitFor: cfg.LimitFor,
	}, classes.Of(nil), control.Hooks{VoidKeys: func() {}, Resumed: func() {}, Relimited: func() {}, Switched: func() {}})
	if err != nil {
		return nil, err
	}
	b.maxKey, b.party.Sized = cfg.MaxKeyBytes, func(int64) {}
	b.leased = &RateLeaseLimiter{base: b, in: h.leases.New(leased.Config{
		Name: cfg.Name, MaxWait: cfg.MaxWait, MaxKeys: cfg.MaxKeys, MaxKeyBytes: cfg.MaxKeyBytes, Floor: cfg.FallbackFloor, TagBy: cfg.TagBy,
	}, views[0], b.party, b.done)}
	if err := h.enter(b); err != nil {
		return nil, err
	}
	return b.leased, nil
}

// RateLeaseLimiters returns the open limiters of leased rates of the hub, sorted by name.
func (h *Hub) RateLeaseLimiters() []*RateLeaseLimiter {
	var out []*RateLeaseLimiter
	for _, l := range h.all() {
		if l.leased != nil {
			out = append(out, l.leased)
		}
	}
	return out
}

// Allow is AllowN with a cost of 1.
func (l *RateLeaseLimiter) Allow(ctx context.Context, key string) (hybridlimit.Result, error) {
	return l.in.Allow(ctx, key, 1)
}

// AllowN takes n units of key, all or none, from those that this process has in hand. Source is SourceRateLease then. A
// call without units in hand is denied, or asks Redis (SourceRedis): see RateLeaseConfig.MaxWait. Only this wait
// observes ctx: when ctx ends first, nothing is charged and AllowN returns the error of ctx.
//
// An n above the burst is denied for ever. Remaining is the units in hand and those that Redis has left, by its last
// answer and the time since. RetryAfter is an estimate.
func (l *RateLeaseLimiter) AllowN(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
	return l.in.Allow(ctx, key, n)
}

// Peek returns this process's knowledge of a key: Allowed means that it has a unit in hand, or has no lease of the key
// and would ask Redis. Peek takes nothing, sends nothing and fails as Allow does.
func (l *RateLeaseLimiter) Peek(_ context.Context, key string) (hybridlimit.Result, error) {
	return l.in.Peek(key)
}

// Policy returns the limit that is enforced on key. It calls RateLeaseConfig.LimitFor.
func (l *RateLeaseLimiter) Policy(key string) hybridlimit.Policy {
	limit, _ := l.control.LimitFor(key)
	return hybridlimit.Policy{Name: l.name, Limit: limit, Shadow: l.control.Shadow.Load()}
}

// Len returns the number of keys in memory.
func (l *RateLeaseLimiter) Len() int { return l.in.Len() }

// Reset makes the bucket of a key full in Redis, for the whole fleet. Leased rates stay. It waits for the answer, at most
// for HubConfig.SyncTimeout. Without one it returns ErrUnavailable, and the next exchange of the key resets it.
func (l *RateLeaseLimiter) Reset(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, l.hub.engine.Timeout())
	defer cancel()
	return l.in.Reset(ctx, key)
}

// Close denies all further calls with hybridlimit.ErrClosed, also those that wait. Units that the fallback has admitted
// and that Redis does not know of are lost and counted. Leases end by themselves, within eight seconds. Close is
// idempotent, and its error is always nil.
func (l *RateLeaseLimiter) Close() error {
	l.shut()
	l.in.WriteOff()
	l.hub.forget(l.base)
	return nil
}

// Shutdown gives all leases back to Redis, pays the units owed, and then closes the limiter. It stops waiting when ctx
// ends, or after 5 s if ctx has no deadline. The error then has the number of units that Redis does not know of.
func (l *RateLeaseLimiter) Shutdown(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleWithin)
		defer cancel()
	}
	l.stop()
	err := l.in.Drain(ctx)
	l.hub.leave([]*base{l.base})
	return errors.Join(err, l.Close())
}
