package hybrid

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Switch overrides the usual decisions of a limit, by hand, for an incident or a rollout. SetSwitch sets it for this
// process, and SetFleetSwitch for the fleet. The switch of the process wins.
type Switch uint8

// The switches. Their numbers never change: the gauge rate_limiting.switch shows them, and Redis keeps them for a
// fleet.
const (
	// SwitchNormal decides by Config.
	SwitchNormal Switch = iota
	// SwitchShadow decides and counts, but denies no call, as Config.Shadow does.
	SwitchShadow
	// SwitchLocalOnly decides as during an outage of Redis: by Config.Fallback, from the state that the process had. The
	// Source is SourceFallback. Redis receives only heartbeats for this limit. Admitted units are owed. They are
	// settled when the switch is taken back, as after an outage.
	SwitchLocalOnly
	// SwitchAllowAll admits everything and counts no units, so nothing is owed for it. The Source is SourceSwitch.
	SwitchAllowAll
	// SwitchDenyAll denies everything, also under Config.Shadow. The Source is SourceSwitch.
	SwitchDenyAll

	numSwitches
)

var switchNames = [numSwitches]string{"normal", "shadow", "local_only", "allow_all", "deny_all"}

// String returns "normal", "shadow", "local_only", "allow_all" or "deny_all".
func (s Switch) String() string {
	if s < numSwitches {
		return switchNames[s]
	}
	return fmt.Sprintf("Switch(%d)", uint8(s))
}

// ParseSwitch parses the text that String returns.
func ParseSwitch(text string) (Switch, error) {
	for s, name := range switchNames {
		if name == text {
			return Switch(s), nil
		}
	}
	var bad hybridlimit.Violations
	bad.Add("Switch", text, `must be "normal", "shadow", "local_only", "allow_all" or "deny_all"`)
	return 0, bad.Err("hybrid")
}

func (s Switch) check() error {
	var bad hybridlimit.Violations
	if s >= numSwitches {
		bad.Add("Switch", s, "is not a switch")
	}
	return bad.Err("hybrid")
}

// switchTTL is the time for which Redis keeps a fleet's switch or limit without a heartbeat. The heartbeats of all processes
// renew it. So it lives as long as the limiter is in use anywhere, even if the process that set it has ended. A day
// keeps the switch of a fleet that is scaled to zero over a night. A limiter that is gone for good leaves nothing
// behind.
const switchTTL = 24 * time.Hour

// settleSpread is the time over which a process that leaves SwitchLocalOnly spreads the syncs of its owed units.
const settleSpread = time.Second

// switches holds the switches of a limiter.
type switches struct {
	// now is the switch in force. A valid budget implies one of these: it is SwitchNormal or SwitchShadow, or it is
	// SwitchLocalOnly and the units are leased. See changeSwitch.
	now    atomic.Uint32
	shadow atomic.Bool // SwitchShadow or Config.Shadow: no call is denied

	mu    sync.Mutex // guards the fields below
	local Switch
	own   bool      // local is set, and wins
	fleet wire.Flag // as last heard

	logged  Switch          // the switch in the last log line
	line    *sometimes.Line // about changes
	skipped int64           // changes since that line
	odd     int64           // last logged fleet switch that this version does not know
}

// inForce returns the switch that decides.
func (l *Limiter) inForce() Switch { return Switch(l.switches.now.Load()) }

// alone reports whether decisions on a tag must do without Redis, because it does not answer or must not be asked.
func (l *Limiter) alone(tag int) bool {
	return l.inForce() == SwitchLocalOnly || l.hub.broken(tag)
}

// mute reports whether Redis must not be asked. Shutdown pays nevertheless, because no other process would.
func (l *Limiter) mute() bool { return l.inForce() == SwitchLocalOnly && !l.closed.Load() }

// wordless reports whether the fast path must not decide.
func (l *Limiter) wordless() bool { return l.closed.Load() || l.inForce() >= SwitchAllowAll }

// SetSwitch sets the switch of this process from the next decision on. It overrides the fleet's switch, also with
// SwitchNormal. ClearSwitch goes back to the fleet's. The setting is not stored: a restarted process follows the
// fleet. Leaving SwitchLocalOnly checks every key in memory, which takes some ms for 100 000.
func (l *Limiter) SetSwitch(s Switch) error {
	if err := s.check(); err != nil {
		return err
	}
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	l.changeSwitch(func(w *switches) { w.local, w.own = s, true })
	return nil
}

// ClearSwitch undoes SetSwitch: the fleet's switch applies again.
func (l *Limiter) ClearSwitch() { l.changeSwitch(func(w *switches) { w.own = false }) }

// Switch returns the switch in force, and whether it is this process's own.
func (l *Limiter) Switch() (s Switch, own bool) {
	w := &l.switches
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.inForce(), w.own
}

// SetFleetSwitch sets the switch of all processes that share the limit. This process applies it at once, and the
// others after their next heartbeat, within a second. (In a fleet of more than 500, processes that have had no call for
// ten seconds apply it within ten seconds, or a round trip after their next call.) SwitchNormal takes it back. Redis keeps the switch, and the
// fleet restores it in a Redis that has lost it. While Redis does not answer, processes keep the switch that they
// heard last, and a process that starts decides as usual.
//
// SetFleetSwitch costs one message, whatever the state of the breaker. It waits for the answer, at most for
// HubConfig.SyncTimeout. Without an answer it returns ErrUnavailable, and the switch may or may not have been set.
func (l *Limiter) SetFleetSwitch(ctx context.Context, s Switch) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	return l.hub.SetFleetSwitch(ctx, l.cfg.Name, s)
}

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
		l.heardSwitch(flag, flag.At)
		h.heart.news.again.Store(true)
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
	if err := s.check(); err != nil {
		return flag, err
	}
	err = h.operate(ctx, "switch", limiter, func(ctx context.Context) (err error) {
		flag, err = h.runner.SetSwitch(ctx, h.names.Switch(limiter), h.names.Changed(), int64(s), switchTTL)
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
	h.beats.Add(1)
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

// heardSwitch notes the fleet's switch as Redis reported it at now (µs of its time). The later of two settings
// counts, because an earlier message may be answered after a later one. Of two with the same time the report counts: a
// report has no later time than its own, and Redis may have set the second one ahead of that. A set time in the future
// means that Redis's clock was set back or that another program wrote it. Then the report counts too.
func (l *Limiter) heardSwitch(f wire.Flag, now int64) {
	l.changeSwitch(func(w *switches) {
		if f.At >= w.fleet.At || f.At > 0 && w.fleet.At > now {
			w.fleet = f
		}
	})
}

// told returns the fleet's switch as the limiter last heard it.
func (l *Limiter) told() wire.Flag {
	w := &l.switches
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fleet
}

// changeSwitch applies a change, and from then on the resulting switch decides. It also compares the log with the
// switch in force: a line that came too soon after another is made up for with a heartbeat.
func (l *Limiter) changeSwitch(change func(*switches)) {
	w := &l.switches
	w.mu.Lock()
	change(w)
	from, to := l.inForce(), w.choose()
	// The order matters. An event that has read the old switch gives its budget an epoch that Void then makes past.
	w.now.Store(uint32(to))
	w.shadow.Store(to == SwitchShadow || l.live.Load().shadow)
	if from != to {
		l.hub.clock.Void()
		if l.flight != nil {
			l.hub.permits.lookAgain()
		}
		w.skipped++
	}
	note := l.noteSwitch()
	w.mu.Unlock()
	note()
	if from == SwitchLocalOnly && to != from {
		l.settleLater()
	}
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

// noteSwitch returns a function that writes the log lines. Call noteSwitch under l.switches.mu, and the function
// without any lock. The switch in force is logged, unless another line about it was written less than logEvery ago.
func (l *Limiter) noteSwitch() (write func()) {
	w, name := &l.switches, slog.String("limiter", l.cfg.Name)
	var lines []func()
	if f := w.fleet.Switch; f >= int64(numSwitches) && f != w.odd {
		w.odd = f
		lines = append(lines, func() {
			l.hub.log.Write(slog.LevelWarn, tell.MsgOddSwitch, 0, []any{name, slog.Int64("switch", f)})
		})
	}
	to := l.inForce()
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
		lines = append(lines, func() { l.hub.log.Write(slog.LevelWarn, tell.MsgSwitch, skipped, attrs) })
	}
	return func() {
		for _, line := range lines {
			line()
		}
	}
}

// settleLater syncs the units that SwitchLocalOnly left owed, spread over a second, because a whole fleet switches
// back within one second.
func (l *Limiter) settleLater() {
	now := time.Now()
	l.each(func(e *entry) {
		if _, open, _ := e.unsettled(); open > 0 {
			l.hub.engine.Enqueue(e.tag(), e, now.Add(rand.N(settleSpread)))
		}
	})
}

// quiet is Freeze while Redis must not be asked. The fallback answers waiting calls. The pause does not count as time in
// which Redis owes an answer.
func (e *entry) quiet() {
	e.lock()
	defer e.unlock()
	if !e.dead() {
		e.account.Unstick()
	}
}

// retrySwitched is the RetryAfter of SwitchDenyAll. The end of the switch is not known, but processes hear of it once
// per heartbeat.
const retrySwitched = census.Every

// switched returns the answer if a switch decides.
func (l *Limiter) switched(n int64) (res hybridlimit.Result, ok bool) {
	s := l.inForce()
	if s < SwitchAllowAll {
		return res, false
	}
	l.hub.heart.pace.event(0)
	res = hybridlimit.Result{Limit: l.plan.Load().Burst, Source: hybridlimit.SourceSwitch, Policy: l.cfg.Name}
	if s == SwitchAllowAll {
		res.Allowed, res.Granted, res.Remaining = true, n, res.Limit
	} else {
		res.RetryAfter = retrySwitched
	}
	return res, true
}

// decidedBySwitch is switched, and counts the decision. It counts no units, because no limit has admitted them.
func (l *Limiter) decidedBySwitch(n int64) (res hybridlimit.Result, ok bool) {
	if res, ok = l.switched(n); ok {
		l.count.Decided(res.Source, res.Allowed, n)
	}
	return res, ok
}

// uncounted returns the answer to a Charge or a Refund of units that SwitchAllowAll did not count.
func (l *Limiter) uncounted(n int64) (res hybridlimit.Result, ok bool) {
	if l.inForce() != SwitchAllowAll {
		return res, false
	}
	return l.switched(n)
}
