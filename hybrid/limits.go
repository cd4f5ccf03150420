package hybrid

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// inFlight is the violation of a limit of calls in flight where a rate must be.
const inFlight = "counts calls in flight, and this is a rate limiter: use Hub.Concurrency, or NewConcurrency of package local for one process"

// addInFlight appends the violation of a limit of calls in flight. field names the limit.
func addInFlight(bad *hybridlimit.Violations, field string, limit hybridlimit.Limit) {
	if limit.Algorithm == hybridlimit.AlgConcurrent {
		bad.Add(field+".Algorithm", limit.Algorithm, inFlight)
	}
}

// addRate appends the violation of a rate where a limit of calls in flight must be. field names the limit.
func addRate(bad *hybridlimit.Violations, field string, limit hybridlimit.Limit) {
	if limit.Algorithm != hybridlimit.AlgConcurrent && !account.Static(limit) {
		bad.Add(field+".Algorithm", limit.Algorithm, "must be concurrent, unlimited or blocked: this limiter counts calls in flight")
	}
}

// rated returns ErrUnsupported for a limit of calls in flight.
func rated(limit hybridlimit.Limit) error {
	if limit.Algorithm != hybridlimit.AlgConcurrent {
		return nil
	}
	return fmt.Errorf("hybrid: %w: the limit (%v) %s", hybridlimit.ErrUnsupported, limit, inFlight)
}

// LimitSource is the source of a limiter's limit. Of several limits, the one with the highest source is in force. A
// limit of a call (AllowLimit) and a limit of a key (Hub.SetFleetKeyLimit, Settings.Keys, Config.LimitFor, in this order)
// win over all of them.
type LimitSource uint8

// The sources, from the weakest to the strongest. Their numbers never change: the gauge rate_limiting.limit.source
// shows them.
const (
	// LimitFromConfig is the limit that New or Hub.Limiter received.
	LimitFromConfig LimitSource = iota
	// LimitFromSettings is Settings.Limit, for example from a file.
	LimitFromSettings
	// LimitFromFleet is the limit of SetFleetLimit.
	LimitFromFleet
	// LimitFromProcess is the limit of SetLimit.
	LimitFromProcess

	limitSources
)

// String returns "config", "settings", "fleet" or "process".
func (s LimitSource) String() string {
	if s < limitSources {
		return [...]string{"config", "settings", "fleet", "process"}[s]
	}
	return fmt.Sprintf("LimitSource(%d)", uint8(s))
}

// ofProgram reports whether the program itself has set the limit. Its changes are not logged.
func (s LimitSource) ofProgram() bool { return s == LimitFromConfig || s == LimitFromProcess }

// LimitState has the limits of a limiter.
type LimitState struct {
	InForce    hybridlimit.Limit // of every key without a limit of its own
	Source     LimitSource       // of InForce
	Configured hybridlimit.Limit // that New or Hub.Limiter received
	// Fleet is the fleet's limit as last heard, also if a stronger one is in force or if it is only for a part of the
	// keys. Zero: none.
	Fleet FleetLimit
}

// noLimit is the limit of a source that has none. It is not valid.
var noLimit hybridlimit.Limit

// limits chooses the limit in force.
type limits struct {
	source atomic.Uint32 // LimitSource of the limit in force

	// mu guards the fields below. It is held until the plan of a changed limit is stored. Without it, two concurrent
	// changes could end with the choice of the later and the plan of the earlier.
	mu         sync.Mutex
	configured hybridlimit.Limit
	settings   hybridlimit.Limit // zero: none
	process    hybridlimit.Limit // zero: none
	fleet      FleetLimit        // zero: none
	heard      wire.FleetLimit   // the fleet's limit as Redis said it last
	keys       keyLimits
}

// choose returns the limit for all keys, and its source. Call it under w.mu.
func (w *limits) choose() (hybridlimit.Limit, LimitSource) {
	switch {
	case w.process != noLimit:
		return w.process, LimitFromProcess
	case w.fleet.Limit != noLimit && w.fleet.all():
		return w.fleet.Limit, LimitFromFleet
	case w.settings != noLimit:
		return w.settings, LimitFromSettings
	}
	return w.configured, LimitFromConfig
}

// chooseCanary returns the limit for a part of the keys; zero: none. Call it under w.mu.
func (w *limits) chooseCanary() FleetLimit {
	if w.process != noLimit || w.fleet.all() {
		return FleetLimit{}
	}
	return w.fleet
}

// changeLimit applies a change. If another limit is in force then, every key without a limit of its own gets it with
// its next call. Used units stay used. A change that changes no limit in force has no effect on any key.
//
// changeLimit returns a function that writes the log line. Call that one without any lock.
func (l *Limiter) changeLimit(change func(*limits)) (note func()) {
	w := &l.limits
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
	return l.applyLimits()
}

// applyLimits is changeLimit after the change. Call it under l.limits.mu.
func (l *Limiter) applyLimits() (note func()) {
	w, have, some := &l.limits, l.plan.Load(), l.canary.Load()
	limit, source := w.choose()
	part := w.chooseCanary()
	from := LimitSource(w.source.Swap(uint32(source)))
	if limit == have.Limit && some.is(part) {
		return func() {}
	}
	now := max(1, l.hub.clock.Now())
	plan := func(v *Limiter, limit hybridlimit.Limit) *account.Plan {
		p := v.newPlan(limit)
		// Also if the limit is the same as before: a key may come to it from the canary's limit, or go there.
		p.Began = now
		if account.Static(limit) {
			p.Counts = have.Counts
		}
		return p
	}
	for _, v := range l.views {
		var next *canary
		if part.Limit != noLimit {
			next = &canary{limit: part, plan: plan(v, part.Limit)}
		}
		// A key that is given its plan between the two stores gets the old one of one of them. Its next event sees that
		// the plan is outdated, and Void makes that event the next one.
		v.canary.Store(next)
		v.plan.Store(plan(v, limit))
	}
	next := l.canary.Load()
	l.hub.clock.Void()
	if l.flight != nil {
		l.hub.permits.changed()
	}
	if source.ofProgram() && from.ofProgram() && next == nil && some == nil {
		return func() {}
	}
	attrs := []any{
		slog.String("limiter", l.cfg.Name), slog.String("from", limitText(have.Limit)), slog.String("to", limitText(limit)),
		slog.String("by", source.String()),
	}
	if next != nil {
		attrs = append(attrs, slog.String("canary", part.text()))
	}
	return func() { l.hub.log.Event(tell.MsgLimit, attrs...) }
}

// planOf returns the plan of a key without a limit of its own.
func (l *Limiter) planOf(key string) *account.Plan {
	if c := l.canary.Load(); c != nil && c.has(l.cfg.Name, key) {
		return c.plan
	}
	return l.plan.Load()
}

// follows reports whether LimitFor means by this limit that the key has none of its own: it is the limiter's limit.
// The configured one also counts while the settings or the fleet replace it, because LimitFor cannot know of these.
func (l *Limiter) follows(limit hybridlimit.Limit, plan *account.Plan) bool {
	if limit == plan.Limit {
		return true
	}
	w := &l.limits
	if LimitSource(w.source.Load()) == LimitFromProcess {
		return false
	}
	return limit == w.configured
}

// SetLimit changes the limit of every key that has no limit of its own, at once, in this process. Used units stay used:
// the level of a key, in units, survives, capped at the new burst, and refills at the new rate from then on. A change is
// never a free refill. Units that are already leased may still be spent, for at most one second. Leased units of a
// window may be spent until their window ends.
//
// SetLimit wins over the limits of the settings and of the fleet until ClearLimit. It never changes the algorithm. Other
// processes keep their limit: SetFleetLimit changes all. While processes differ, each op counts by the limit of its
// sender, and the fleet may admit more than the larger of the limits. SetLimit fails if another limiter of this program
// has the same client, prefix and name, because that limiter would continue with the old limit.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if l.cfg.FallbackFloor > limit.BurstSize() && !account.Static(limit) {
		bad.Add("Limit.Burst", limit.BurstSize(), fmt.Sprintf("must not be below Config.FallbackFloor (%d)", l.cfg.FallbackFloor))
	}
	err := bad.Err("hybrid")
	l.changeLimit(func(w *limits) {
		if err = errors.Join(err, l.fits(limit, l.plan.Load())); err != nil {
			return
		}
		if err = reclaim(l.hub.identity(l.cfg.Name), limit); err == nil {
			w.process = limit
		}
	})()
	return err
}

// ClearLimit undoes SetLimit: the limit of the fleet, of the settings, or of Config is in force again, by the rules of
// SetLimit. Without a SetLimit before it does nothing.
func (l *Limiter) ClearLimit() error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	var err error
	l.changeLimit(func(w *limits) {
		if w.process == noLimit {
			return
		}
		if err = reclaim(l.hub.identity(l.cfg.Name), w.configured); err == nil {
			w.process = noLimit
		}
	})()
	return err
}

// keyFrom is limitFrom for a key with a limit of its own.
func (l *Limiter) keyFrom(key string) string {
	if _, ok := l.fleetKey(key); ok {
		return "fleet_key"
	}
	return "key"
}

// limitFrom returns the source of a key's limit, for Inspection.LimitFrom.
func (l *Limiter) limitFrom(key string, p *account.Plan) string {
	if p.From != account.FromLimiter {
		return l.keyFrom(key)
	}
	if c := l.canary.Load(); c != nil && (c.plan == p || c.plan == p.Of) {
		return LimitFromFleet.String()
	}
	return LimitSource(l.limits.source.Load()).String()
}

// Limit returns the limiter's limit in force. It applies to keys without a limit of their own.
func (l *Limiter) Limit() hybridlimit.Limit { return l.plan.Load().Limit }

// LimitState returns the limits of the limiter, and the source of the one in force.
func (l *Limiter) LimitState() LimitState {
	w := &l.limits
	w.mu.Lock()
	defer w.mu.Unlock()
	limit, source := w.choose()
	return LimitState{InForce: limit, Source: source, Configured: w.configured, Fleet: w.fleet}
}
