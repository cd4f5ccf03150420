package hybrid

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// news is a hub's knowledge of the settings of its limiters: the fleets' switches and limits. Heartbeats tell only the time of the
// last change of any setting of the deployment.
type news struct {
	// again is set after a setting was changed here, and after Redis has lost its memory: settings must be told whatever the time
	// of the last change, which may be lost too.
	again atomic.Bool

	// The rest belongs to the heartbeat's goroutine.
	known   bool
	changed int64     // the time with which the settings were heard
	renew   time.Time // tell them again then, so that they do not expire
}

// settle asks Redis for the settings of limiters, and tells Redis those that it may have lost: of all limiters after a change and
// once in renewEvery, otherwise of new limiters. Without an answer it does so after the next heartbeat. Limiters are ready from then
// on.
func (b *heartbeat) settle(ctx context.Context, changed int64) {
	n, all := &b.news, b.hub.present()
	every := n.again.Swap(false) && slices.ContainsFunc(all, (*Limiter).hasSettings)
	every = every || !n.known || n.changed != changed || !time.Now().Before(n.renew)
	ask := slices.Clone(all)
	if !every {
		ask = slices.DeleteFunc(ask, func(l *Limiter) bool { return l.fleet.settled })
	}
	first := true
	for part := range slices.Chunk(ask, wire.MaxSettings) {
		heard, ok := b.hub.fleetSettings(ctx, part)
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
		if b.loaded && l.fleet.settled && (l.fleet.Beats() >= 2 || l.fleet.Hint > 0) {
			l.readyOnce.Do(func() { close(l.ready) })
		}
	}
}

// hasSettings reports whether the limiter knows a setting of its fleet.
func (l *Limiter) hasSettings() bool {
	return l.control.HeardSwitch().At > 0 || l.control.HeardLimit().At > 0 || l.control.KeysVersion() > 0
}

// fleetSettings exchanges the fleet's settings of limiters with Redis, in one message. A limiter with other limits of keys costs one
// more.
func (h *Hub) fleetSettings(ctx context.Context, ls []*Limiter) (heard wire.Settings, ok bool) {
	seen := make([]wire.Setting, len(ls))
	for i, l := range ls {
		seen[i] = wire.Setting{
			SwitchKey: h.names.Switch(l.cfg.Name), LimitKey: h.names.FleetLimit(l.cfg.Name), KeysKey: h.names.KeyLimits(l.cfg.Name),
			Flag: l.control.HeardSwitch(), Limit: l.control.HeardLimit(),
		}
	}
	_, _, err := h.exchange(ctx, func(ctx context.Context) (err error) {
		heard, err = h.runner.Settings(ctx, h.names.Changed(), seen, control.TTL)
		return err
	})
	if err != nil {
		return heard, false
	}
	for i, l := range ls {
		l.control.HearSwitch(heard.Of[i].Flag, heard.Now)
		l.control.HearLimit(heard.Of[i].Limit, heard.Now)
		if heard.Of[i].Keys != l.control.KeysVersion() && !h.syncKeys(ctx, l) {
			return heard, false
		}
		l.fleet.settled = true
	}
	return heard, true
}
