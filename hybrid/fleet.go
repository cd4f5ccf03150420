package hybrid

import (
	"context"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// fleet is a limiter's knowledge of the other processes of its fleet. The heartbeat's goroutine owns the fields below the census.
type fleet struct {
	census.Census

	beaten int64   // µs of Redis's time of the last answered heartbeat; 0: none
	loaded bool    // Redis has the batch script
	small  bool    // the log line about a C of 0 was written
	name   *string // the identity of the last heartbeat
}

// watch makes all budgets end when the first known fleet size goes stale: credit is not valid from then on.
func (h *Hub) watch(now int64) {
	first := int64(math.MaxInt64)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.limiters {
		if ends := l.fleet.Ends(); ends > now {
			first = min(first, ends)
		}
	}
	h.clock.EndAll(first)
}

// beat runs a limiter's heartbeat until it is stopped or the limiter closes.
func (l *Limiter) beat() {
	defer l.hub.wg.Done()
	defer close(l.beaten)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.stopBeat:
			return
		case <-l.ctx.Done():
			return
		}
		timer.Reset(census.Every)
		l.overflow.release(l.hub.clock.Now())
		l.changeSwitch(func(*switches) {}) // writes the log line if one is due
		l.beatDenials()
		l.ageLimits(l.hub.clock.Now())
		l.heartbeat(l.ctx, false)
	}
}

// leave takes the process out of the fleet. It first waits for the heartbeat in flight, which would otherwise bring the process
// back.
func (l *Limiter) leave() {
	l.stopOnce.Do(func() { close(l.stopBeat) })
	<-l.beaten
	l.heartbeat(l.hub.ctx, true)
}

// heartbeat tells the fleet that this process is alive, or that it leaves. It gives up when ctx ends.
func (l *Limiter) heartbeat(ctx context.Context, leave bool) {
	h, f := l.hub, &l.fleet
	br := h.breaker(h.names.FleetTag(l.cfg.Name))
	call, ok := br.Begin()
	if !ok {
		return
	}
	if name := h.beatsAs.Load(); name != f.name {
		f.name, f.beaten = name, 0 // the identity is new to Redis
	}
	sent := time.Now()
	given := h.cfg.SyncTimeout + h.engine.Late()
	bounded, cancel := context.WithTimeout(ctx, given)
	beat, err := h.runner.Heartbeat(bounded, wire.Pulse{
		Fleet: h.names.Fleet(l.cfg.Name), Switch: h.names.Switch(l.cfg.Name), Process: *f.name,
		Expiry: census.Expiry, Leave: leave, Seen: l.told(), TTL: switchTTL,
	})
	cancel()
	if err != nil && ctx.Err() != nil {
		err = context.Canceled // closing: no evidence about Redis
	}
	call.End(h.engine.Outcome(given, time.Since(sent), err))
	h.beats.Add(1)
	if err != nil || leave {
		return
	}
	received := h.clock.Now()
	l.heardSwitch(beat.Flag, beat.Now)
	before := f.Size()
	f.Counted(int64(beat.Alive), h.clock.At(sent), received)
	h.watch(received)
	if f.Size() != before {
		h.clock.Void() // C has changed
	}
	h.clocks.heard(h.names.FleetTag(l.cfg.Name), beat.Now, h.clock.At(sent), received)
	if beat.Before < f.beaten {
		l.suspect()
	} else if f.beaten > 0 {
		h.watching.Store(h.clock.At(sent) + int64(census.Stale)) // the next beat is due before that
	}
	f.beaten = beat.Now
	if !f.small && f.Known(h.clock.Now()) && l.givesCredit() && !account.Static(l.plan.Load().Limit) && l.credit(l.plan.Load(), f.Size()) == 0 {
		f.small = true
		h.log.small(l, f.Size())
	}
	if !f.loaded {
		f.loaded = l.loadScript(ctx)
	}
	if f.loaded && f.Beats() >= 2 {
		l.readyOnce.Do(func() { close(l.ready) })
	}
}

// loadScript sends an empty batch, so that Redis has the batch script before the first sync needs it. In a cluster each other master
// gets it with the first sync that it receives, at the cost of one round trip.
func (l *Limiter) loadScript(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.hub.cfg.SyncTimeout)
	defer cancel()
	_, err := l.hub.runner.Batch(ctx, wire.Envelope{}, nil)
	l.hub.beats.Add(1)
	return err == nil
}
