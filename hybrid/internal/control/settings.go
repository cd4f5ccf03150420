package control

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// Settings are hybrid.Settings.
type Settings struct {
	Limit    hybridlimit.Limit
	Keys     map[string]hybridlimit.Limit
	Shadow   *bool
	Mode     *account.Mode
	Fallback *fallback.Kind
}

// live is the part of a limiter's configuration, other than limits, that may change while it runs.
type live struct {
	mode     account.Mode
	fallback fallback.Kind
	shadow   bool
	keys     map[string]hybridlimit.Limit
	keyed    bool // there are keys, or were: some may still have their limits
}

// Violations returns the violations that can be seen without the limiter.
func (s Settings) Violations() adapter.Violations {
	var bad adapter.Violations
	if s.Limit != None {
		bad.AddLimit(s.Limit)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		if err := s.Keys[key].Validate(); err != nil {
			bad.Add(fmt.Sprintf("Settings.Keys[%q]", key), LimitText(s.Keys[key]), "is not a valid limit: "+err.Error())
		}
	}
	if s.Mode != nil && !s.Mode.Valid() {
		bad.Add("Settings.Mode", *s.Mode, "is not a mode")
	}
	if s.Fallback != nil && !s.Fallback.Valid() {
		bad.Add("Settings.Fallback", *s.Fallback, "is not a fallback")
	}
	return bad
}

// Misfits returns the violations of valid settings that this limiter cannot adopt.
func (c *Control) Misfits(s Settings) adapter.Violations {
	var bad adapter.Violations
	misfit := func(field string, limit hybridlimit.Limit) {
		switch {
		case len(c.fits(limit)) == 0:
		case !c.cfg.InFlight && limit.Algorithm == hybridlimit.AlgConcurrent:
			AddInFlight(&bad, field, limit)
		case c.cfg.Leased && limit.Algorithm == c.views[0].plan.Load().Counts:
			AddLeased(&bad, field, limit)
		default:
			bad.Add(field+".Algorithm", limit.Algorithm, "must be the algorithm of the limiter, "+c.views[0].plan.Load().Counts.String())
		}
	}
	if s.Limit != None {
		misfit("Settings.Limit", s.Limit)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		misfit(fmt.Sprintf("Settings.Keys[%q]", key), s.Keys[key])
	}
	if s.Mode != nil && *s.Mode != c.cfg.Mode && (c.cfg.InFlight || c.cfg.Leased || *s.Mode == account.ModeExact || c.cfg.Mode == account.ModeExact) {
		bad.Add("Settings.Mode", *s.Mode, fmt.Sprintf("cannot replace Config.Mode %v while the limiter runs", c.cfg.Mode))
	}
	return bad
}

// Adopt applies settings that have no violations. Settings that are in force already have no effect. It returns a
// function that writes the log line. Call both without any lock.
func (c *Control) Adopt(s Settings) (note func()) {
	old := c.live.Load()
	next := &live{mode: c.cfg.Mode, fallback: c.cfg.Fallback, shadow: c.cfg.Shadow, keys: s.Keys, keyed: old.keyed || len(s.Keys) > 0}
	if s.Mode != nil {
		next.mode = *s.Mode
	}
	if s.Fallback != nil {
		next.fallback = *s.Fallback
	}
	if s.Shadow != nil {
		next.shadow = *s.Shadow
	}
	c.live.Store(next)
	if old.shadow != next.shadow {
		c.switches.mu.Lock()
		c.Shadow.Store(c.Switch() == SwitchShadow || next.shadow)
		c.switches.mu.Unlock()
	}
	if !maps.Equal(old.keys, next.keys) {
		c.VoidLimits()
	}
	c.hooks.Relimited()
	if old.mode != next.mode || old.fallback != next.fallback {
		c.cfg.Clock.Void()
	}
	return c.change(func(w *limits) { w.settings = s.Limit })
}
