package hybrid

import (
	"context"

	"github.com/hybridlimit/hybridlimit"
)

// This file has the verbs of a ConcurrencyLimiter that are those of a Limiter: names, limits and switches.

// Name returns ConcurrencyConfig.Name.
func (l *ConcurrencyLimiter) Name() string { return l.base.cfg.Name }

// Mode returns ConcurrencyConfig.Mode.
func (l *ConcurrencyLimiter) Mode() Mode { return l.base.Mode() }

// Hub returns the hub that the limiter belongs to.
func (l *ConcurrencyLimiter) Hub() *Hub { return l.base.hub }

// Policy returns the limit that is enforced on key. It calls
// ConcurrencyConfig.LimitFor.
func (l *ConcurrencyLimiter) Policy(key string) hybridlimit.Policy {
	return hybridlimit.Policy{Name: l.base.cfg.Name, Limit: l.base.limitFor(key)}
}

// Limit returns the limit in force of keys without a limit of their own.
func (l *ConcurrencyLimiter) Limit() hybridlimit.Limit { return l.base.Limit() }

// LimitState returns the limits of the limiter, and the source of the one in force.
func (l *ConcurrencyLimiter) LimitState() LimitState { return l.base.LimitState() }

// SetLimit changes the limit of every key that has no limit of its own, in this
// process: to a limit of calls in flight, Unlimited or Blocked. Running calls go on.
// No call of a key is admitted until Redis has answered once more. With fewer permits,
// none is admitted until the running calls are fewer than the limit. It wins over
// the limits of the settings and of the fleet until ClearLimit. While processes
// have different limits, the largest counts: SetFleetLimit changes all.
func (l *ConcurrencyLimiter) SetLimit(limit hybridlimit.Limit) error { return l.base.SetLimit(limit) }

// ClearLimit undoes SetLimit: the limit of the fleet, of the settings, or of
// Concurrency is in force again.
func (l *ConcurrencyLimiter) ClearLimit() error { return l.base.ClearLimit() }

// SetFleetLimit sets the limit of all processes that share this limiter's limit:
// see Limiter.SetFleetLimit.
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

// SetFleetSwitch sets the switch of all processes that share the limit: see
// Limiter.SetFleetSwitch.
func (l *ConcurrencyLimiter) SetFleetSwitch(ctx context.Context, s Switch) error {
	return l.base.SetFleetSwitch(ctx, s)
}

// Ready waits until Redis has answered, the scripts are loaded, and the fleet size N is
// measured: see Limiter.Ready.
func (l *ConcurrencyLimiter) Ready(ctx context.Context) error { return l.base.Ready(ctx) }
