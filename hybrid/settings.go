package hybrid

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
)

// Settings are the parts of a limiter's configuration that may change while it runs. The zero Settings change nothing:
// the limiter decides by New's limit and by Config. Package limitfile reads them from a file.
type Settings struct {
	// Limit replaces the limit that New or Hub.Limiter received. It must have the algorithm of that limit. It takes
	// effect as with SetLimit. A limit of SetLimit and of SetFleetLimit wins over it. Zero: no change.
	Limit hybridlimit.Limit
	// Keys has the limits of keys, by key. They must have the limiter's algorithm. They win over Config.LimitFor and over
	// every limit of the limiter. SetSettings keeps the map, so it must not change afterwards.
	Keys map[string]hybridlimit.Limit
	// Shadow replaces Config.Shadow. Nil: no change.
	Shadow *bool
	// Mode replaces Config.Mode. ModeExact may neither replace another mode nor be replaced, because another mode may
	// hold units that Redis does not know of. Nil: no change.
	Mode *Mode
	// Fallback replaces Config.Fallback. Nil: no change.
	Fallback *Fallback
}

// live is the part of a limiter's configuration, other than limits, that may change while it runs.
type live struct {
	mode     Mode
	fallback Fallback
	shadow   bool
	keys     map[string]hybridlimit.Limit
	keyed    bool // there are keys, or were: some may still have their limits
}

// SetSettings replaces the settings of all limiters of the hub, by the name of the limiter. A limiter without an entry
// goes back to its Config. Entries for limiters that the hub does not have are kept until it has them: then
// Hub.Limiter fails if they do not fit.
//
// SetSettings validates all of them first. On an error, no limiter changes: the error joins a *SettingsError for each
// limiter with violations. It changes one limiter after the other, without a pause, and sends no message. A limiter
// whose settings are in force already keeps its budgets.
func (h *Hub) SetSettings(all map[string]Settings) error {
	var notes []func()
	defer func() {
		for _, note := range notes {
			note()
		}
	}()
	h.setting.Lock()
	defer h.setting.Unlock() // before the notes
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return hybridlimit.ErrClosed
	}
	limiters := maps.Clone(h.limiters)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		bad := s.violations()
		if !hybridlimit.CheckName(name) {
			bad.Add("name", name, "must match [A-Za-z0-9_.-]{1,128}")
		}
		if l := limiters[name]; l != nil && len(bad) == 0 {
			bad = l.settingsViolations(s)
		}
		if err := bad.Err("hybrid"); err != nil {
			errs = append(errs, &SettingsError{name, err})
		}
	}
	if err := errors.Join(errs...); err != nil {
		h.mu.Unlock()
		return err
	}
	h.settings = maps.Clone(all) // a limiter that is made from now on takes them from here
	h.mu.Unlock()
	for _, l := range limiters {
		notes = append(notes, l.applySettings(all[l.cfg.Name]))
	}
	return nil
}

// SettingsError is the part of an error of SetSettings that is about one limiter.
type SettingsError struct {
	Limiter string // the name of the limiter
	Err     error  // an *hybridlimit.InvalidError with all violations
}

// Error returns the limiter and the violations.
func (e *SettingsError) Error() string {
	return fmt.Sprintf("settings of limiter %q: %v", e.Limiter, e.Err)
}

// Unwrap returns Err.
func (e *SettingsError) Unwrap() error { return e.Err }

// violations returns the violations that can be seen without the limiter.
func (s Settings) violations() hybridlimit.Violations {
	var bad hybridlimit.Violations
	if s.Limit != noLimit {
		bad.AddLimit(s.Limit)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		if err := s.Keys[key].Validate(); err != nil {
			bad.Add(fmt.Sprintf("Settings.Keys[%q]", key), limitText(s.Keys[key]), "is not a valid limit: "+err.Error())
		}
	}
	if s.Mode != nil && *s.Mode >= modes {
		bad.Add("Settings.Mode", *s.Mode, "is not a mode")
	}
	if s.Fallback != nil && *s.Fallback >= fallbacks {
		bad.Add("Settings.Fallback", *s.Fallback, "is not a fallback")
	}
	return bad
}

// settingsViolations returns the violations of valid settings that this limiter cannot adopt.
func (l *Limiter) settingsViolations(s Settings) hybridlimit.Violations {
	var bad hybridlimit.Violations
	have := l.plan.Load()
	misfit := func(field string, limit hybridlimit.Limit) {
		switch {
		case l.fits(limit, have) == nil:
		case l.flight == nil && limit.Algorithm == hybridlimit.AlgConcurrent:
			addInFlight(&bad, field, limit)
		default:
			bad.Add(field+".Algorithm", limit.Algorithm, "must be the algorithm of the limiter, "+have.Counts.String())
		}
	}
	if s.Limit != noLimit {
		misfit("Settings.Limit", s.Limit)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		misfit(fmt.Sprintf("Settings.Keys[%q]", key), s.Keys[key])
	}
	if s.Mode != nil && *s.Mode != l.cfg.Mode && (l.flight != nil || *s.Mode == ModeExact || l.cfg.Mode == ModeExact) {
		bad.Add("Settings.Mode", *s.Mode, fmt.Sprintf("cannot replace Config.Mode %v while the limiter runs", l.cfg.Mode))
	}
	return bad
}

// applySettings adopts settings that have no violations. Settings that are in force already have no effect. It returns
// a function that writes the log line. Call it without any lock.
func (l *Limiter) applySettings(s Settings) (note func()) {
	old := l.live.Load()
	next := &live{mode: l.cfg.Mode, fallback: l.cfg.Fallback, shadow: l.cfg.Shadow, keys: s.Keys, keyed: old.keyed || len(s.Keys) > 0}
	if s.Mode != nil {
		next.mode = *s.Mode
	}
	if s.Fallback != nil {
		next.fallback = *s.Fallback
	}
	if s.Shadow != nil {
		next.shadow = *s.Shadow
	}
	l.live.Store(next)
	if old.shadow != next.shadow {
		l.switches.mu.Lock()
		l.switches.shadow.Store(l.inForce() == SwitchShadow || next.shadow)
		l.switches.mu.Unlock()
	}
	if !maps.Equal(old.keys, next.keys) {
		l.voidLimits()
	}
	if l.flight != nil {
		l.hub.permits.changed()
	}
	if old.mode != next.mode || old.fallback != next.fallback {
		l.hub.clock.Void()
	}
	return l.changeLimit(func(w *limits) { w.settings = s.Limit })
}

// keyed reports whether keys may have limits of their own.
func (l *Limiter) keyed() bool {
	return l.cfg.LimitFor != nil || l.live.Load().keyed || l.fleetKeys.Load() != nil
}

// ownLimit returns the limit of a key, and whether it is the key's own. plan is that of a key without one. It runs a
// callback of the user.
func (l *Limiter) ownLimit(key string, plan *account.Plan) (limit hybridlimit.Limit, own bool) {
	if limit, ok := l.listed(key); ok {
		return limit, true
	}
	if l.cfg.LimitFor != nil {
		if limit := l.cfg.LimitFor(key); !l.follows(limit, plan) {
			return limit, true
		}
	}
	return plan.Limit, false
}

// limitFor returns the limit of a key, as a call without a limit would get it.
func (l *Limiter) limitFor(key string) hybridlimit.Limit {
	limit, _ := l.ownLimit(key, l.planOf(key))
	return limit
}
