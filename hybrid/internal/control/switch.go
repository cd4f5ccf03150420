package control

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Switch overrides the usual decisions of a limit: see hybrid.Switch.
type Switch uint8

// The switches. Their numbers never change: Redis keeps them for a fleet.
const (
	SwitchNormal Switch = iota
	SwitchShadow
	SwitchLocalOnly
	SwitchAllowAll
	SwitchDenyAll

	numSwitches
)

var switchNames = []string{"normal", "shadow", "local_only", "allow_all", "deny_all"}

// String returns "normal", "shadow", "local_only", "allow_all" or "deny_all".
func (s Switch) String() string { return text(switchNames, "Switch", uint8(s)) }

// ParseSwitch parses the text that String returns.
func ParseSwitch(text string) (Switch, error) {
	for s, name := range switchNames {
		if name == text {
			return Switch(s), nil
		}
	}
	var bad adapter.Violations
	bad.Add("Switch", text, `must be "normal", "shadow", "local_only", "allow_all" or "deny_all"`)
	return 0, bad.Err("hybrid")
}

// Check returns an error for a number that is no switch.
func (s Switch) Check() error {
	var bad adapter.Violations
	bad.AddIf(s >= numSwitches, "Switch", s, "is not a switch")
	return bad.Err("hybrid")
}

// switches holds the switches of a limiter.
type switches struct {
	// now is the switch in force. A valid budget implies one of these: it is SwitchNormal or SwitchShadow, or it is
	// SwitchLocalOnly and the units are leased. See changeSwitch.
	now atomic.Uint32

	mu    sync.Mutex // guards the fields below, and writes of Control.Shadow
	local Switch
	own   bool      // local is set, and wins
	fleet wire.Flag // as last heard

	logged  Switch          // the switch in the last log line
	line    *sometimes.Line // about changes
	skipped int64           // changes since that line
	odd     int64           // last logged fleet switch that this version does not know
}

// choose returns the switch that should be in force. Call it under w.mu.
func (w *switches) choose() Switch {
	switch {
	case w.own:
		return w.local
	case w.fleet.Switch < int64(numSwitches):
		return Switch(w.fleet.Switch)
	}
	return SwitchNormal // a switch of a later version of this module
}

// Switch returns the switch that decides.
func (c *Control) Switch() Switch { return Switch(c.switches.now.Load()) }

// LocalOnly reports whether decisions must do without Redis.
func (c *Control) LocalOnly() bool { return c.Switch() == SwitchLocalOnly }

// Mute reports whether Redis must not be asked. Shutdown pays nevertheless, because no other process would.
func (c *Control) Mute() bool { return c.LocalOnly() && !c.Closed.Load() }

// Wordless reports whether the fast path must not decide.
func (c *Control) Wordless() bool { return c.Closed.Load() || c.Switch() >= SwitchAllowAll }

// SetSwitch is hybrid.Limiter.SetSwitch.
func (c *Control) SetSwitch(s Switch) error {
	if err := s.Check(); err != nil {
		return err
	}
	if c.Closed.Load() {
		return hybridlimit.ErrClosed
	}
	c.changeSwitch(func(w *switches) { w.local, w.own = s, true })
	return nil
}

// ClearSwitch is hybrid.Limiter.ClearSwitch.
func (c *Control) ClearSwitch() { c.changeSwitch(func(w *switches) { w.own = false }) }

// SwitchOwn returns the switch in force, and whether it is this process's own.
func (c *Control) SwitchOwn() (s Switch, own bool) {
	w := &c.switches
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.Switch(), w.own
}

// HearSwitch notes the fleet's switch as Redis reported it at now (µs of its time). The later of two settings counts,
// because an earlier message may be answered after a later one. Of two with the same time the report counts: a report
// has no later time than its own, and Redis may have set the second one ahead of that. A set time in the future means
// that Redis's clock was set back or that another program wrote it. Then the report counts too.
func (c *Control) HearSwitch(f wire.Flag, now int64) {
	c.changeSwitch(func(w *switches) {
		if f.At >= w.fleet.At || f.At > 0 && w.fleet.At > now {
			w.fleet = f
		}
	})
}

// HeardSwitch returns the fleet's switch as last heard.
func (c *Control) HeardSwitch() wire.Flag {
	w := &c.switches
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fleet
}

// Beat writes the log line about a change of the switch that came too soon after another one. Heartbeats call it.
func (c *Control) Beat() { c.changeSwitch(func(*switches) {}) }

// changeSwitch applies a change, and from then on the resulting switch decides. It also compares the log with the
// switch in force.
func (c *Control) changeSwitch(change func(*switches)) {
	w := &c.switches
	w.mu.Lock()
	change(w)
	from, to := c.Switch(), w.choose()
	// The order matters. An event that has read the old switch gives its budget an epoch that Void then makes past.
	w.now.Store(uint32(to))
	c.Shadow.Store(to == SwitchShadow || c.live.Load().shadow)
	if from != to {
		c.cfg.Clock.Void()
		c.hooks.Switched()
		w.skipped++
	}
	note := c.noteSwitch()
	w.mu.Unlock()
	note()
	if from == SwitchLocalOnly && to != from {
		c.hooks.Resumed()
	}
}

// noteSwitch returns a function that writes the log lines. Call noteSwitch under c.switches.mu, and the function
// without any lock. The switch in force is logged, unless another line about it was written less than tell.LogEvery
// ago.
func (c *Control) noteSwitch() (write func()) {
	w, name := &c.switches, slog.String("limiter", c.cfg.Name)
	var lines []func()
	if f := w.fleet.Switch; f >= int64(numSwitches) && f != w.odd {
		w.odd = f
		lines = append(lines, func() {
			c.cfg.Log.Write(slog.LevelWarn, tell.MsgOddSwitch, 0, []any{name, slog.Int64("switch", f)})
		})
	}
	to := c.Switch()
	due := to != w.logged
	if due {
		_, due = w.line.Due()
	}
	if due {
		by := "fleet"
		if w.own {
			by = "process"
		}
		attrs := []any{name, slog.String("from", w.logged.String()), slog.String("to", to.String()), slog.String("by", by)}
		skipped := w.skipped - 1
		w.logged, w.skipped = to, 0
		lines = append(lines, func() { c.cfg.Log.Write(slog.LevelWarn, tell.MsgSwitch, skipped, attrs) })
	}
	return func() {
		for _, line := range lines {
			line()
		}
	}
}

// RetrySwitched is the RetryAfter of SwitchDenyAll. The end of the switch is not known, but processes hear of it once
// per heartbeat.
const RetrySwitched = census.Every

// Switched returns the answer to a call for n units if a switch decides.
func (v *View) Switched(n int64) (res hybridlimit.Result, ok bool) {
	s := v.Switch()
	if s < SwitchAllowAll {
		return res, false
	}
	res = hybridlimit.Result{Limit: v.Plan().Burst, Source: hybridlimit.SourceSwitch, Policy: v.cfg.Name}
	if s == SwitchAllowAll {
		res.Allowed, res.Granted, res.Remaining = true, n, res.Limit
	} else {
		res.RetryAfter = RetrySwitched
	}
	return res, true
}
