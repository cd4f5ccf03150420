package hybrid

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// Settings are the parts of a limiter's configuration that may change while it runs. The zero Settings change nothing:
// the limiter decides by New's limit and by Config. Package limitfile reads them from a file.
type Settings struct {
	// Limit replaces the limit that New or Hub.Limiter received. It must have the algorithm of that limit. It takes
	// effect as with SetLimit. A limit of SetLimit and of SetFleetLimit wins over it. Zero: no change.
	Limit hybridlimit.Limit
	// Keys has the limits of keys, by key. They must have the limiter's algorithm. They win over Config.LimitFor and
	// over every limit of the limiter. SetSettings keeps the map, so it must not change afterwards.
	Keys map[string]hybridlimit.Limit
	// Shadow replaces Config.Shadow. Nil: no change.
	Shadow *bool
	// Mode replaces Config.Mode. ModeExact may neither replace another mode nor be replaced, because another mode may
	// hold units that Redis does not know of. Nil: no change.
	Mode *Mode
	// Fallback replaces Config.Fallback. Nil: no change.
	Fallback *Fallback
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
		s := all[name].control()
		bad := s.Violations()
		if !adapter.CheckName(name) {
			bad.Add("name", name, "must match [A-Za-z0-9_.-]{1,128}")
		}
		if l := limiters[name]; l != nil && len(bad) == 0 {
			bad = l.control.Misfits(s)
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
		notes = append(notes, l.control.Adopt(all[l.name].control()))
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

// control returns the settings as the limiter's control takes them.
func (s Settings) control() control.Settings {
	return control.Settings{Limit: s.Limit, Keys: s.Keys, Shadow: s.Shadow, Mode: (*account.Mode)(s.Mode), Fallback: (*fallback.Kind)(s.Fallback)}
}

// LimitSource is the source of a limiter's limit. Of several limits, the one with the highest source is in force. A
// limit of a call (AllowLimit) and a limit of a key (Hub.SetFleetKeyLimit, Settings.Keys, Config.LimitFor, in this
// order) win over all of them.
type LimitSource uint8

// The sources, from the weakest to the strongest. Their numbers never change: the gauge rate_limiting.limit.source
// shows them.
const (
	// LimitFromConfig is the limit that New or Hub.Limiter received.
	LimitFromConfig = LimitSource(control.FromConfig)
	// LimitFromSettings is Settings.Limit, for example from a file.
	LimitFromSettings = LimitSource(control.FromSettings)
	// LimitFromFleet is the limit of SetFleetLimit.
	LimitFromFleet = LimitSource(control.FromFleet)
	// LimitFromProcess is the limit of SetLimit.
	LimitFromProcess = LimitSource(control.FromProcess)
)

// String returns "config", "settings", "fleet" or "process".
func (s LimitSource) String() string { return control.Source(s).String() }

// LimitState has the limits of a limiter.
type LimitState struct {
	InForce    hybridlimit.Limit // of every key without a limit of its own
	Source     LimitSource       // of InForce
	Configured hybridlimit.Limit // that New or Hub.Limiter received
	// Fleet is the fleet's limit as last heard, also if a stronger one is in force or if it is only for a part of the
	// keys. Zero: none.
	Fleet FleetLimit
}

// Switch overrides the usual decisions of a limit, by hand, for an incident or a rollout. SetSwitch sets it for this
// process, and SetFleetSwitch for the fleet. The switch of the process wins.
type Switch uint8

// The switches. Their numbers never change: the gauge rate_limiting.switch shows them, and Redis keeps them for a
// fleet.
const (
	// SwitchNormal decides by Config.
	SwitchNormal = Switch(control.SwitchNormal)
	// SwitchShadow decides and counts, but denies no call, as Config.Shadow does.
	SwitchShadow = Switch(control.SwitchShadow)
	// SwitchLocalOnly decides as during an outage of Redis: by Config.Fallback, from the state that the process had.
	// The Source is SourceFallback. Redis receives only heartbeats for this limit. Admitted units are owed. They are
	// settled when the switch is taken back, as after an outage.
	SwitchLocalOnly = Switch(control.SwitchLocalOnly)
	// SwitchAllowAll admits everything and counts no units, so nothing is owed for it. The Source is SourceSwitch.
	SwitchAllowAll = Switch(control.SwitchAllowAll)
	// SwitchDenyAll denies everything, also under Config.Shadow. The Source is SourceSwitch.
	SwitchDenyAll = Switch(control.SwitchDenyAll)
)

// String returns "normal", "shadow", "local_only", "allow_all" or "deny_all".
func (s Switch) String() string { return control.Switch(s).String() }

// ParseSwitch parses the text that String returns.
func ParseSwitch(text string) (Switch, error) {
	s, err := control.ParseSwitch(text)
	return Switch(s), err
}
