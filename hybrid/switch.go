package hybrid

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Switch takes a limit out of its usual course, by hand: for an incident, or a
// rollout. SetSwitch sets it for this process, SetFleetSwitch for the fleet; a
// process's own wins.
type Switch uint8

// The switches. Their numbers are what the gauge rate_limiting.switch shows, and
// what Redis keeps of a fleet's: they do not change.
const (
	// SwitchNormal decides as Config says.
	SwitchNormal Switch = iota
	// SwitchShadow decides and counts, but denies nobody, as Config.Shadow does.
	SwitchShadow
	// SwitchLocalOnly decides as without a Redis, by Config.Fallback, from what
	// the process knew, and says SourceFallback. Of this limit Redis hears
	// heartbeats only. What is admitted is owed, and settled when the switch is
	// taken back, as after an outage.
	SwitchLocalOnly
	// SwitchAllowAll admits everything and counts no units: nothing is owed for
	// it. It says SourceSwitch.
	SwitchAllowAll
	// SwitchDenyAll denies everything, also under Config.Shadow. It says
	// SourceSwitch.
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

// ParseSwitch reads what String writes.
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

// switchTTL is how long Redis keeps a fleet's switch of which no process
// reminds it. Whoever set it need not stay: heartbeats renew it, so it lives as
// long as the limiter is in use anywhere. The day is for a fleet that is scaled
// to nothing over a night, and should not wake up without what it was told in
// the evening; a limiter that is gone for good leaves nothing behind.
const switchTTL = 24 * time.Hour

// settleSpread is over how long a process that leaves SwitchLocalOnly spreads
// the syncs of what it owes.
const settleSpread = time.Second

// switches is what a limiter has been told by hand.
type switches struct {
	// now is the switch in force. A word of the common path that is good says
	// that it is SwitchNormal or SwitchShadow, or, while it is SwitchLocalOnly,
	// that the units are leased: see set.
	now    atomic.Uint32
	shadow atomic.Bool // nobody is denied: by that, or by Config

	mu    sync.Mutex // guards what follows
	local Switch
	own   bool      // local is set, and wins
	fleet wire.Flag // as heard last

	logged   Switch    // by the last line
	loggedAt time.Time // when that was written
	skipped  int       // changes since
	odd      int64     // a fleet's switch that this version does not know, and was logged
}

// inForce is the switch that decides.
func (l *Limiter) inForce() Switch { return Switch(l.switches.now.Load()) }

// alone says whether decisions on a tag must do without Redis: it does not
// answer, or is not to be asked.
func (l *Limiter) alone(tag int) bool {
	return l.inForce() == SwitchLocalOnly || l.hub.broken(tag)
}

// mute says that Redis is not to be asked. Shutdown pays all the same: nobody
// else would.
func (l *Limiter) mute() bool { return l.inForce() == SwitchLocalOnly && !l.closed.Load() }

// wordless says that the common path may not decide.
func (l *Limiter) wordless() bool { return l.closed.Load() || l.inForce() >= SwitchAllowAll }

// SetSwitch sets the switch of this process, from the next decision on,
// whatever the fleet's is; SwitchNormal is such a setting too, and ClearSwitch
// goes back to the fleet's. It is not kept: a restarted process follows the
// fleet. Leaving SwitchLocalOnly looks at every key in memory, some ms for
// 100 000.
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

// ClearSwitch takes back SetSwitch: the fleet's switch holds.
func (l *Limiter) ClearSwitch() { l.changeSwitch(func(w *switches) { w.own = false }) }

// Switch is the switch in force, and whether it is this process's own.
func (l *Limiter) Switch() (s Switch, own bool) {
	w := &l.switches
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.inForce(), w.own
}

// SetFleetSwitch sets the switch of all processes that share the limit, this
// one at once and the others with their next heartbeat, within a second;
// SwitchNormal takes it back. Redis keeps it, and a Redis that has lost it is
// told by the fleet; while Redis does not answer, processes keep to what they
// heard last, and one that starts decides as usual. It costs one message, for
// which it waits, HubConfig.SyncTimeout at most, whatever the breaker says. Without an
// answer it is ErrUnavailable, and may or may not have been set.
func (l *Limiter) SetFleetSwitch(ctx context.Context, s Switch) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	flag, err := l.hub.setFleetSwitch(ctx, l.cfg.Name, s)
	if err == nil {
		l.heardSwitch(flag, flag.At)
	}
	return err
}

// SetFleetSwitch is Limiter.SetFleetSwitch of a limiter by its name, which need
// not be of this hub: for a tool that is no process of the fleet. What processes
// there are hears of it with their next heartbeats. Prefix and Tags must be
// theirs.
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
	}
	return nil
}

// FleetSwitch asks Redis for the fleet's switch of a limiter by its name, and
// for when it was set, by Redis's clock: the zero Time if it never was.
func (h *Hub) FleetSwitch(ctx context.Context, limiter string) (Switch, time.Time, error) {
	var flag wire.Flag
	err := h.aboutSwitch(ctx, limiter, func(ctx context.Context, key string) (err error) {
		flag, err = h.runner.Switch(ctx, key)
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
	err = h.aboutSwitch(ctx, limiter, func(ctx context.Context, key string) (err error) {
		flag, err = h.runner.SetSwitch(ctx, key, int64(s), switchTTL)
		if err == nil && flag.Switch != int64(s) {
			err = fmt.Errorf("%w: set to %d, answered %d", wire.ErrReply, s, flag.Switch)
		}
		return err
	})
	return flag, err
}

// aboutSwitch asks Redis something of a limiter's switch. The breaker is not
// asked, nor told: an operator may well know better.
func (h *Hub) aboutSwitch(ctx context.Context, limiter string, ask func(ctx context.Context, key string) error) error {
	if !hybridlimit.CheckName(limiter) {
		var bad hybridlimit.Violations
		bad.Add("limiter", limiter, "must match [A-Za-z0-9_.-]{1,128}")
		return bad.Err("hybrid")
	}
	bounded, cancel := context.WithTimeout(ctx, h.cfg.SyncTimeout)
	defer cancel()
	err := ask(bounded, h.names.Switch(limiter))
	h.beats.Add(1)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case h.ctx.Err() != nil:
		return hybridlimit.ErrClosed
	}
	return fmt.Errorf("hybrid: the switch of %q: %w: %w", limiter, hybridlimit.ErrUnavailable, err)
}

// heardSwitch notes what the fleet was told, as Redis said at now, in µs of its
// time. Of two the later counts: a heartbeat that was sent before the other may
// be answered after it. A time in the future tells nothing (Redis's clock was
// set back, or somebody else wrote it): then what Redis says now counts.
func (l *Limiter) heardSwitch(f wire.Flag, now int64) {
	l.changeSwitch(func(w *switches) {
		if f.At > w.fleet.At || f.At > 0 && w.fleet.At > now {
			w.fleet = f
		}
	})
}

// told is what the limiter has heard of the fleet's switch.
func (l *Limiter) told() wire.Flag {
	w := &l.switches
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fleet
}

// changeSwitch changes what was told, and has the outcome decide from here on.
// It also looks whether the log says what is: a line that came too soon after
// another is made up for with a heartbeat.
func (l *Limiter) changeSwitch(change func(*switches)) {
	w := &l.switches
	w.mu.Lock()
	change(w)
	from, to := l.inForce(), w.choose()
	// In this order: an event that has read the old switch stamps its word with
	// an epoch that is over then.
	w.now.Store(uint32(to))
	w.shadow.Store(to == SwitchShadow || l.cfg.Shadow)
	if from != to {
		l.hub.clock.Void()
		w.skipped++
	}
	note := l.noteSwitch()
	w.mu.Unlock()
	note()
	if from == SwitchLocalOnly && to != from {
		l.settleLater()
	}
}

// choose is the switch that should be in force. Call it with w.mu.
func (w *switches) choose() Switch {
	switch {
	case w.own:
		return w.local
	case w.fleet.Switch < int64(numSwitches):
		return Switch(w.fleet.Switch)
	}
	return SwitchNormal // of a later version of this module
}

// noteSwitch returns what is to be logged, once no lock is held: what is in
// force, unless another line was written less than logEvery ago. Call it with
// l.switches.mu.
func (l *Limiter) noteSwitch() (write func()) {
	w, name := &l.switches, slog.String("limiter", l.cfg.Name)
	var lines []func()
	if f := w.fleet.Switch; f >= int64(numSwitches) && f != w.odd {
		w.odd = f
		lines = append(lines, func() {
			l.hub.log.write(slog.LevelWarn, msgOddSwitch, 0, []any{name, slog.Int64("switch", f)})
		})
	}
	if to := l.inForce(); to != w.logged && (w.loggedAt.IsZero() || time.Since(w.loggedAt) >= logEvery) {
		by := "fleet"
		if w.own {
			by = "process"
		}
		attrs := []any{name, slog.String("from", w.logged.String()), slog.String("to", to.String()), slog.String("by", by)}
		skipped := w.skipped - 1
		w.logged, w.loggedAt, w.skipped = to, time.Now(), 0
		lines = append(lines, func() { l.hub.log.write(slog.LevelWarn, msgSwitch, skipped, attrs) })
	}
	return func() {
		for _, line := range lines {
			line()
		}
	}
}

// settleLater has what SwitchLocalOnly left owed synced, spread over a second:
// whole fleets are switched back within one.
func (l *Limiter) settleLater() {
	now := time.Now()
	l.store.each(func(e *entry) {
		if _, open, _ := e.unsettled(); open > 0 {
			l.hub.engine.Enqueue(e.tag(), e, now.Add(rand.N(settleSpread)))
		}
	})
}

// quiet is Freeze while Redis is not to be asked: those who wait are answered
// by the fallback, and nobody later is told that Redis has kept them waiting.
func (e *entry) quiet() {
	e.lock()
	defer e.unlock()
	if !e.dead {
		e.account.Unstick()
	}
}

// retrySwitched is the RetryAfter of SwitchDenyAll: nobody knows when it will
// be taken back, but processes hear of it once in so long.
const retrySwitched = census.Every

// switched is the answer where a switch decides.
func (l *Limiter) switched(n int64) (res hybridlimit.Result, ok bool) {
	s := l.inForce()
	if s < SwitchAllowAll {
		return res, false
	}
	res = hybridlimit.Result{Limit: l.plan.Load().Limit.BurstSize(), Source: hybridlimit.SourceSwitch, Policy: l.cfg.Name}
	if s == SwitchAllowAll {
		res.Allowed, res.Granted, res.Remaining = true, n, res.Limit
	} else {
		res.RetryAfter = retrySwitched
	}
	return res, true
}

// decidedBySwitch is switched, counted: as a decision, and no unit, since what a
// switch admits no limit has admitted.
func (l *Limiter) decidedBySwitch(n int64) (res hybridlimit.Result, ok bool) {
	if res, ok = l.switched(n); ok {
		l.count.decided(res.Source, res.Allowed, n)
	}
	return res, ok
}

// uncounted is the answer to a Charge or a Refund of units that SwitchAllowAll
// did not count.
func (l *Limiter) uncounted(n int64) (res hybridlimit.Result, ok bool) {
	if l.inForce() != SwitchAllowAll {
		return res, false
	}
	return l.switched(n)
}
