package hybrid

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

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

// settleSpread is the time over which a process that leaves SwitchLocalOnly spreads the syncs of its owed units.
const settleSpread = time.Second

// SetFleetSwitch is Limiter.SetFleetSwitch for a limiter by its name, which need not belong to this hub. It is for a
// tool that is not a process of the fleet. The fleet's processes hear of the switch after their next heartbeats.
// Prefix and Tags must be the same as theirs.
func (h *Hub) SetFleetSwitch(ctx context.Context, limiter string, s Switch) error {
	flag, err := h.setFleetSwitch(ctx, limiter, s)
	if err != nil {
		return err
	}
	h.mu.Lock()
	l := h.limiters[limiter]
	h.mu.Unlock()
	if l != nil {
		l.control.HearSwitch(flag, flag.At)
		h.heart.Again.Store(true)
	}
	return nil
}

// FleetSwitch asks Redis for the fleet's switch of a limiter by its name. It also returns the time at which the
// switch was set, by Redis's clock; the zero Time if it never was.
func (h *Hub) FleetSwitch(ctx context.Context, limiter string) (Switch, time.Time, error) {
	var flag wire.Flag
	err := h.operate(ctx, "switch", limiter, func(ctx context.Context) (err error) {
		flag, err = h.runner.Switch(ctx, h.names.Switch(limiter))
		return err
	})
	if err != nil || flag.At == 0 {
		return SwitchNormal, time.Time{}, err
	}
	return Switch(min(flag.Switch, 255)), time.UnixMicro(flag.At), nil
}

func (h *Hub) setFleetSwitch(ctx context.Context, limiter string, s Switch) (flag wire.Flag, err error) {
	if err := control.Switch(s).Check(); err != nil {
		return flag, err
	}
	err = h.operate(ctx, "switch", limiter, func(ctx context.Context) (err error) {
		flag, err = h.runner.SetSwitch(ctx, h.names.Switch(limiter), h.names.Changed(), int64(s), control.TTL)
		if err == nil && flag.Switch != int64(s) {
			err = fmt.Errorf("%w: the switch was set to %d, but Redis answered %d", wire.ErrReply, s, flag.Switch)
		}
		return err
	})
	return flag, err
}

// operate asks Redis about the fleet's switch or limit of a limiter. It neither asks the breaker nor reports to it,
// because an operator may know better.
func (h *Hub) operate(ctx context.Context, setting, limiter string, ask func(ctx context.Context) error) error {
	if !hybridlimit.CheckName(limiter) {
		var bad hybridlimit.Violations
		bad.Add("limiter", limiter, "must match [A-Za-z0-9_.-]{1,128}")
		return bad.Err("hybrid")
	}
	bounded, cancel := context.WithTimeout(ctx, h.cfg.SyncTimeout)
	defer cancel()
	err := ask(bounded)
	h.heart.Messages.Add(1)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case h.ctx.Err() != nil:
		return hybridlimit.ErrClosed
	}
	return fmt.Errorf("hybrid: %s of limiter %q: %w: %w", setting, limiter, hybridlimit.ErrUnavailable, err)
}

// settleLater syncs the units that SwitchLocalOnly left owed, spread over a second, because a whole fleet switches
// back within one second.
func (m *family) settleLater() {
	now := time.Now()
	m.each(func(e *keys.Entry) {
		if _, open, _ := e.Unsettled(); open > 0 {
			m.hub.engine.Enqueue(e.Tag(), e, now.Add(rand.N(settleSpread)))
		}
	})
}

// switched returns the answer if a switch decides.
func (l *Limiter) switched(n int64) (res hybridlimit.Result, ok bool) {
	if res, ok = l.control.Switched(n); ok {
		l.hub.heart.Pace.Event(0)
	}
	return res, ok
}

// decidedBySwitch is switched, and counts the decision. It counts no units, because no limit has admitted them.
func (l *Limiter) decidedBySwitch(n int64) (res hybridlimit.Result, ok bool) {
	if res, ok = l.switched(n); ok {
		l.terms.Count.Decided(res.Source, res.Allowed, n)
	}
	return res, ok
}

// uncounted returns the answer to a Charge or a Refund of units that SwitchAllowAll did not count.
func (l *Limiter) uncounted(n int64) (res hybridlimit.Result, ok bool) {
	if l.control.Switch() != control.SwitchAllowAll {
		return res, false
	}
	return l.switched(n)
}
