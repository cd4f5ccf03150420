package member

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// news is a hub's knowledge of the settings of its limiters: the fleets' switches and limits. Heartbeats tell only the
// time of the last change of any setting of the deployment. After heartbeat.Again, settings must be told whatever that
// time, which may be lost too. The heartbeat's goroutine owns it.
type news struct {
	known   bool
	changed int64     // the time with which the settings were heard
	renew   time.Time // tell them again then, so that they do not expire
}

// settle asks Redis for the settings of limiters, and tells Redis those that it may have lost: of all limiters after a
// change and once in renewEvery, otherwise of new limiters. Without an answer it does so after the next heartbeat.
// Limiters are ready from then on.
func (b *Heart) settle(ctx context.Context, changed int64) {
	n, all := &b.news, b.present()
	every := b.Again.Swap(false) && slices.ContainsFunc(all, (*Party).hasSettings)
	every = every || !n.known || n.changed != changed || !time.Now().Before(n.renew)
	ask := slices.Clone(all)
	if !every {
		ask = slices.DeleteFunc(ask, func(l *Party) bool { return l.settled })
	}
	first := true
	for part := range slices.Chunk(ask, wire.MaxSettings) {
		heard, ok := b.fleetSettings(ctx, part)
		if !ok {
			n.known = n.known && !every
			return
		}
		if every && first {
			n.known, first, changed = true, false, heard.Changed
		}
	}
	if every {
		n.changed, n.renew = changed, time.Now().Add(time.Duration(clock.Jitter(int64(renewEvery))))
	}
	for _, l := range all {
		if b.loaded && l.settled && (l.Beats() >= 2 || l.Hint > 0) {
			l.readyOnce.Do(func() { close(l.Ready) })
		}
	}
}

// hasSettings reports whether the limiter knows a setting of its fleet.
func (l *Party) hasSettings() bool {
	return l.Control.HeardSwitch().At > 0 || l.Control.HeardLimit().At > 0 || l.Control.KeysVersion() > 0
}

// fleetSettings exchanges the fleet's settings of limiters with Redis, in one message. A limiter with other limits of
// keys costs one more.
func (b *Heart) fleetSettings(ctx context.Context, ls []*Party) (heard wire.Settings, ok bool) {
	seen := make([]wire.Setting, len(ls))
	for i, l := range ls {
		seen[i] = wire.Setting{
			SwitchKey: b.env.Names.Switch(l.Name), LimitKey: b.env.Names.FleetLimit(l.Name), KeysKey: b.env.Names.KeyLimits(l.Name),
			Flag: l.Control.HeardSwitch(), Limit: l.Control.HeardLimit(),
		}
	}
	_, _, err := b.exchange(ctx, func(ctx context.Context) (err error) {
		heard, err = b.env.Runner.Settings(ctx, b.env.Names.Changed(), seen, control.TTL)
		return err
	})
	if err != nil {
		return heard, false
	}
	for i, l := range ls {
		l.Control.HearSwitch(heard.Of[i].Flag, heard.Now)
		l.Control.HearLimit(heard.Of[i].Limit, heard.Now)
		if heard.Of[i].Keys != l.Control.KeysVersion() && !b.syncKeys(ctx, l) {
			return heard, false
		}
		l.settled = true
	}
	return heard, true
}

// syncKeys asks Redis for the fleet's limits of the keys of a limiter, and tells it those that it may have lost.
func (b *Heart) syncKeys(ctx context.Context, l *Party) bool {
	var heard wire.KeyLimits
	state := b.env.Names.KeyLimits(l.Name)
	ask := func(f func(ctx context.Context) (wire.KeyLimits, error)) error {
		_, _, err := b.exchange(ctx, func(ctx context.Context) (err error) {
			heard, err = f(ctx)
			return err
		})
		return err
	}
	if ask(func(ctx context.Context) (wire.KeyLimits, error) { return b.env.Runner.KeyLimits(ctx, state) }) != nil {
		return false
	}
	lost := l.Control.HearKeys(heard)
	if len(lost) == 0 {
		return true
	}
	err := ask(func(ctx context.Context) (wire.KeyLimits, error) {
		return b.env.Runner.TellKeyLimits(ctx, state, b.env.Names.Changed(), lost, control.TTL)
	})
	if errors.Is(err, wire.ErrFull) { // set while Redis did not know these
		b.env.Log.Event(tell.MsgKeysFull, slog.String("limiter", l.Name), slog.Int("keys", len(lost)))
		return true
	}
	if err == nil {
		l.Control.HearKeys(heard)
	}
	return err == nil
}
