package control

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Source is the source of a limiter's limit: see hybrid.LimitSource.
type Source uint8

// The sources, from the weakest to the strongest.
const (
	FromConfig Source = iota
	FromSettings
	FromFleet
	FromProcess
)

// String returns "config", "settings", "fleet" or "process".
func (s Source) String() string {
	return text([]string{"config", "settings", "fleet", "process"}, "LimitSource", uint8(s))
}

// ofProgram reports whether the program itself has set the limit. Its changes are not logged.
func (s Source) ofProgram() bool { return s == FromConfig || s == FromProcess }

// None is the limit of a source that has none. It is not valid.
var None hybridlimit.Limit

// limits chooses the limit in force.
type limits struct {
	source atomic.Uint32 // Source of the limit in force

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
func (w *limits) choose() (hybridlimit.Limit, Source) {
	switch {
	case w.process != None:
		return w.process, FromProcess
	case w.fleet.Limit != None && w.fleet.all():
		return w.fleet.Limit, FromFleet
	case w.settings != None:
		return w.settings, FromSettings
	}
	return w.configured, FromConfig
}

// chooseCanary returns the limit for a part of the keys; zero: none. Call it under w.mu.
func (w *limits) chooseCanary() FleetLimit {
	if w.process != None || w.fleet.all() {
		return FleetLimit{}
	}
	return w.fleet
}

// change applies a change. If another limit is in force then, every key without a limit of its own gets it with its
// next call. Used units stay used. A change that changes no limit in force has no effect on any key.
//
// change returns a function that writes the log line. Call that one without any lock.
func (c *Control) change(change func(*limits)) (note func()) {
	w := &c.limits
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
	return c.apply()
}

// apply is change after the change. Call it under c.limits.mu.
func (c *Control) apply() (note func()) {
	w, own := &c.limits, c.views[0]
	have, some := own.plan.Load(), own.canary.Load()
	limit, source := w.choose()
	part := w.chooseCanary()
	from := Source(w.source.Swap(uint32(source)))
	if limit == have.Limit && some.is(part) {
		return func() {}
	}
	now := max(1, c.cfg.Clock.Now())
	plan := func(v *View, limit hybridlimit.Limit) *account.Plan {
		p := v.NewPlan(limit)
		// Also if the limit is the same as before: a key may come to it from the canary's limit, or go there.
		p.Began = now
		if account.Static(limit) {
			p.Counts = have.Counts
		}
		return p
	}
	for _, v := range c.views {
		var next *canary
		if part.Limit != None {
			next = &canary{limit: part, plan: plan(v, part.Limit)}
		}
		// A key that is given its plan between the two stores gets the old one of one of them. Its next event sees that
		// the plan is outdated, and Void makes that event the next one.
		v.canary.Store(next)
		v.plan.Store(plan(v, limit))
	}
	next := own.canary.Load()
	c.cfg.Clock.Void()
	c.hooks.Relimited()
	if source.ofProgram() && from.ofProgram() && next == nil && some == nil {
		return func() {}
	}
	attrs := []any{
		slog.String("limiter", c.cfg.Name), slog.String("from", LimitText(have.Limit)), slog.String("to", LimitText(limit)),
		slog.String("by", source.String()),
	}
	if next != nil {
		attrs = append(attrs, slog.String("canary", part.Text()))
	}
	return func() { c.cfg.Log.Event(tell.MsgLimit, attrs...) }
}

// SetLimit is hybrid.Limiter.SetLimit.
func (c *Control) SetLimit(limit hybridlimit.Limit) error {
	if c.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	var bad adapter.Violations
	bad.AddLimit(limit)
	if floor := c.cfg.FallbackFloor; floor > limit.BurstSize() && !account.Static(limit) {
		bad.Add("Limit.Burst", limit.BurstSize(), fmt.Sprintf("must not be below Config.FallbackFloor (%d)", floor))
	}
	err := bad.Err("hybrid")
	c.change(func(w *limits) {
		if err = errors.Join(err, c.Fits(limit)); err != nil {
			return
		}
		if err = c.hooks.Claim(limit); err == nil {
			w.process = limit
		}
	})()
	return err
}

// ClearLimit is hybrid.Limiter.ClearLimit.
func (c *Control) ClearLimit() error {
	if c.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	var err error
	c.change(func(w *limits) {
		if w.process == None {
			return
		}
		if err = c.hooks.Claim(w.configured); err == nil {
			w.process = None
		}
	})()
	return err
}

// State is hybrid.LimitState.
type State struct {
	InForce    hybridlimit.Limit
	Source     Source
	Configured hybridlimit.Limit
	Fleet      FleetLimit
}

// State returns the limits of the limiter.
func (c *Control) State() State {
	w := &c.limits
	w.mu.Lock()
	defer w.mu.Unlock()
	limit, source := w.choose()
	return State{InForce: limit, Source: source, Configured: w.configured, Fleet: w.fleet}
}

// Source returns the source of the limit in force.
func (c *Control) Source() Source { return Source(c.limits.source.Load()) }

// Program returns the limit that the program has for the limiter, as text: that of its settings, or that of New. A rate
// that is leased has a text of its own, because a process that does not lease it counts in another state of Redis.
func (c *Control) Program() string {
	w := &c.limits
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := w.configured
	if w.settings != None {
		limit = w.settings
	}
	short := limit
	short.Burst = 0 // a burst that is the default has one text, said or not
	if short.Validate() == nil && short.BurstSize() == limit.BurstSize() {
		limit = short
	}
	if c.cfg.Leased {
		return ratelease.Said + LimitText(limit)
	}
	return LimitText(limit)
}
