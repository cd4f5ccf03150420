package hybrid

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
)

// base is what limiters of rates, of leased rates and of calls in flight have in common: a name in the hub, a part in the
// fleet, and the control of its limits, mode and switch. All classes of a limiter share it.
type base struct {
	hub     *Hub
	name    string
	maxKey  int           // bytes of the longest valid key; 0: the default
	control *control.View // of the limiter itself, not of one of its classes
	party   *member.Party // in the fleet

	done      chan struct{} // closed by Close: waiting calls return
	closeOnce sync.Once
	release   func() // releases the identity

	// All but one of these are nil.
	rates  *family             // its classes
	calls  *ConcurrencyLimiter // in flight
	leased *RateLeaseLimiter
}

// stop makes all further calls fail with ErrClosed.
func (l *base) stop() {
	l.control.Closed.Store(true)
	l.hub.clock.Void()
}

// shut stops the limiter as stop does, releases waiting calls, and gives up the identity.
func (l *base) shut() {
	l.stop()
	l.closeOnce.Do(func() {
		close(l.done)
		l.release()
	})
}

// Name returns the limiter's name: Config.Name or ConcurrencyConfig.Name.
func (l *base) Name() string { return l.name }

// Hub returns the hub that the limiter belongs to.
func (l *base) Hub() *Hub { return l.hub }

// Mode returns the mode: Settings.Mode, or else that of the configuration. Leased rates have no other mode than
// ModeStrict.
func (l *base) Mode() Mode { return Mode(l.control.Mode()) }

// Ready waits until Redis has answered, the scripts are loaded, and the fleet size N is known. Ready is for readiness
// probes: a limiter also decides before it is ready.
//
// Without HubConfig.FleetSize, N is known after two heartbeats, about a second apart, and Ready waits for these until
// ctx ends. With it, Ready waits for one answer of Redis, for at most 400 ms. Its error is then ErrUnavailable: the
// limiter decides by its fallback, with a share for a fleet of FleetSize.
func (l *base) Ready(ctx context.Context) error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	var patience <-chan time.Time
	if l.party.Hint > 0 {
		timer := time.NewTimer(readyWithin)
		defer timer.Stop()
		patience = timer.C
	}
	select {
	case <-l.party.Ready:
		return nil
	case <-l.done:
		return hybridlimit.ErrClosed
	case <-patience:
		return fmt.Errorf("hybrid: limiter %q is not ready: %w: Redis has not answered within %v; the limiter decides by its fallback, for %d processes",
			l.name, hybridlimit.ErrUnavailable, readyWithin, l.party.Hint)
	case <-ctx.Done():
		return fmt.Errorf("hybrid: limiter %q is not ready: %w", l.name, ctx.Err())
	}
}

// readyWithin bounds Ready when the fleet size is given.
const readyWithin = 400 * time.Millisecond

// Limit returns the limiter's limit in force. It applies to keys without a limit of their own.
func (l *base) Limit() hybridlimit.Limit { return l.control.Plan().Limit }

// LimitState returns the limits of the limiter, and the source of the one in force.
func (l *base) LimitState() LimitState {
	s := l.control.State()
	return LimitState{InForce: s.InForce, Source: LimitSource(s.Source), Configured: s.Configured, Fleet: FleetLimit(s.Fleet)}
}

// SetLimit changes the limit of every key that has no limit of its own, at once, in this process. It never changes the
// algorithm. SetLimit wins over the limits of the settings and of the fleet until ClearLimit. Other processes keep their
// limit: SetFleetLimit changes all. SetLimit fails if another limiter of this program has the same client, prefix and
// name, because that limiter would continue with the old limit.
//
// For a rate, used units stay used: the level of a key, in units, survives, capped at the new burst, and refills at the
// new rate from then on. A change is never a free refill. Units that are already leased may still be spent, for at most
// Config.MaxLease. Leased units of a window may be spent until their window ends. While processes differ, each op
// counts by the limit of its sender, and the fleet may admit more than the larger of the limits.
//
// For calls in flight, running calls go on. No call of a key is admitted until Redis has answered once more. With fewer
// permits, none is admitted until the running calls are fewer than the limit. While processes differ, the largest limit
// counts.
func (l *base) SetLimit(limit hybridlimit.Limit) error { return l.control.SetLimit(limit) }

// ClearLimit undoes SetLimit: the limit of the fleet, of the settings, or of the configuration is in force again, by
// the rules of SetLimit. Without a SetLimit before it does nothing.
func (l *base) ClearLimit() error { return l.control.ClearLimit() }

// SetFleetLimit sets the limit of all processes that share this limiter's limit. The zero FleetLimit takes it back.
// This process applies it at once, and the others with the settings that they read after their next heartbeat, within
// two intervals of heartbeats (2 s in a fleet of up to 500 processes). Used units stay used, as with SetLimit. Until
// all have heard of it, each op counts by the limit of its sender, and the bound is that of the larger limit.
//
// Redis keeps the limit, and the fleet restores it in a Redis that has lost it. While Redis does not answer, processes
// keep the limit that they heard last, and a process that starts decides by its own. A limiter of package global has no
// heartbeat and does not hear of it.
//
// It fails with ErrInvalid, and changes nothing, if the limit has another algorithm than this limiter. It costs one
// message, whatever the state of the breaker, and waits for the answer, at most for HubConfig.SyncTimeout. Without an
// answer it returns ErrUnavailable, and the limit may or may not have been set.
func (l *base) SetFleetLimit(ctx context.Context, f FleetLimit) error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	return l.hub.SetFleetLimit(ctx, l.name, f)
}

// SetSwitch sets the switch of this process from the next decision on. It overrides the fleet's switch, also with
// SwitchNormal. ClearSwitch goes back to the fleet's. The setting is not stored: a restarted process follows the
// fleet. Leaving SwitchLocalOnly checks every key in memory, which takes some ms for 100 000.
//
// Under SwitchLocalOnly, calls in flight use the permits that the process holds, and beside them those of the fallback.
// Calls that SwitchAllowAll and SwitchShadow admit without a permit are not counted.
func (l *base) SetSwitch(s Switch) error { return l.control.SetSwitch(control.Switch(s)) }

// ClearSwitch undoes SetSwitch: the fleet's switch applies again.
func (l *base) ClearSwitch() { l.control.ClearSwitch() }

// Switch returns the switch in force, and whether it is this process's own.
func (l *base) Switch() (s Switch, own bool) {
	now, own := l.control.SwitchOwn()
	return Switch(now), own
}

// SetFleetSwitch sets the switch of all processes that share the limit. This process applies it at once, and the others
// after their next heartbeat, within a second. (In a fleet of more than 500, processes that have had no call for ten
// seconds apply it within ten seconds, or a round trip after their next call.) SwitchNormal takes it back. Redis keeps
// the switch, and the fleet restores it in a Redis that has lost it. While Redis does not answer, processes keep the
// switch that they heard last, and a process that starts decides as usual.
//
// SetFleetSwitch costs one message, whatever the state of the breaker. It waits for the answer, at most for
// HubConfig.SyncTimeout. Without an answer it returns ErrUnavailable, and the switch may or may not have been set.
func (l *base) SetFleetSwitch(ctx context.Context, s Switch) error {
	if l.control.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	return l.hub.SetFleetSwitch(ctx, l.name, s)
}

// fellBack returns the limiter's part of the line about a hub that falls back.
func (l *base) fellBack() slog.Attr {
	return slog.Group(l.name, slog.String("fallback", l.control.Fallback().String()), slog.Int64("fleet", l.party.Size()))
}
