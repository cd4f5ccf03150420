package hybrid

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

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
	// Subject maps a key to the text that decides its tag. Keys with one subject
	// share a tag, and so a cluster slot. Nil: the key itself.
	Subject func(key string) string
}

// base returns the configuration of the rate limiter that carries the name, the limits, the switches and the counters.
func (c ConcurrencyConfig) base() Config {
	return Config{
		Name: c.Name, Mode: c.Mode, Overshoot: -1, MaxKeys: c.MaxKeys, MaxKeyBytes: c.MaxKeyBytes, Fallback: c.Fallback,
		Shadow: c.Shadow, LimitFor: c.LimitFor, Subject: c.Subject,
	}
}

func (c ConcurrencyConfig) violations(limit hybridlimit.Limit) hybridlimit.Violations {
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if !hybridlimit.CheckName(c.Name) {
		bad.Add("ConcurrencyConfig.Name", c.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
	}
	if c.Mode != ModeAuto && c.Mode != ModeExact {
		bad.Add("ConcurrencyConfig.Mode", c.Mode, "must be auto or exact")
	}
	if c.MaxWait < 0 {
		bad.Add("ConcurrencyConfig.MaxWait", c.MaxWait, "must not be negative")
	}
	if c.MaxKeys < 0 {
		bad.Add("ConcurrencyConfig.MaxKeys", c.MaxKeys, "must not be negative")
	}
	if c.MaxKeyBytes < 0 {
		bad.Add("ConcurrencyConfig.MaxKeyBytes", c.MaxKeyBytes, "must not be negative")
	}
	if !fallback.Policy(c.Fallback).Valid() {
		bad.Add("ConcurrencyConfig.Fallback", c.Fallback, "is not a fallback")
	}
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

// Name returns ConcurrencyConfig.Name.
func (l *ConcurrencyLimiter) Name() string { return l.base.cfg.Name }

// Mode returns ConcurrencyConfig.Mode.
func (l *ConcurrencyLimiter) Mode() Mode { return l.base.Mode() }

// Hub returns the hub that the limiter belongs to.
func (l *ConcurrencyLimiter) Hub() *Hub { return l.base.hub }

// Policy returns the limit that is enforced on key. It calls ConcurrencyConfig.LimitFor.
func (l *ConcurrencyLimiter) Policy(key string) hybridlimit.Policy {
	return hybridlimit.Policy{Name: l.base.cfg.Name, Limit: l.base.limitFor(key)}
}

// Limit returns the limit in force of keys without a limit of their own.
func (l *ConcurrencyLimiter) Limit() hybridlimit.Limit { return l.base.Limit() }

// LimitState returns the limits of the limiter, and the source of the one in force.
func (l *ConcurrencyLimiter) LimitState() LimitState { return l.base.LimitState() }

// SetLimit changes the limit of every key that has no limit of its own, in this process: to a limit of calls in flight,
// Unlimited or Blocked. Running calls go on. No call of a key is admitted until Redis has answered once more. With
// fewer permits, none is admitted until the running calls are fewer than the limit. It wins over the limits of the
// settings and of the fleet until ClearLimit. While processes have different limits, the largest counts: SetFleetLimit
// changes all.
func (l *ConcurrencyLimiter) SetLimit(limit hybridlimit.Limit) error { return l.base.SetLimit(limit) }

// ClearLimit undoes SetLimit: the limit of the fleet, of the settings, or of Concurrency is in force again.
func (l *ConcurrencyLimiter) ClearLimit() error { return l.base.ClearLimit() }

// SetFleetLimit sets the limit of all processes that share this limiter's limit: see Limiter.SetFleetLimit.
func (l *ConcurrencyLimiter) SetFleetLimit(ctx context.Context, f FleetLimit) error {
	return l.base.SetFleetLimit(ctx, f)
}

// SetSwitch sets the switch of this process: see Limiter.SetSwitch. Under
// SwitchLocalOnly the fallback decides beside the permits that the process holds.
// Calls that SwitchAllowAll and SwitchShadow admit without a permit are not counted.
func (l *ConcurrencyLimiter) SetSwitch(s Switch) error { return l.base.SetSwitch(s) }

// ClearSwitch undoes SetSwitch: the fleet's switch applies again.
func (l *ConcurrencyLimiter) ClearSwitch() { l.base.ClearSwitch() }

// Switch returns the switch in force, and whether it is this process's own.
func (l *ConcurrencyLimiter) Switch() (s Switch, own bool) { return l.base.Switch() }

// SetFleetSwitch sets the switch of all processes that share the limit: see Limiter.SetFleetSwitch.
func (l *ConcurrencyLimiter) SetFleetSwitch(ctx context.Context, s Switch) error {
	return l.base.SetFleetSwitch(ctx, s)
}

// Ready waits until Redis has answered, the scripts are loaded, and the fleet size N is measured: see Limiter.Ready.
func (l *ConcurrencyLimiter) Ready(ctx context.Context) error { return l.base.Ready(ctx) }
