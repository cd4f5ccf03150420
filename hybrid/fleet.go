package hybrid

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// The heartbeat of a limiter, by which its processes count each other.
const (
	beatEvery  = time.Second
	beatExpiry = 3 * time.Second
	// beatStale is the age from which a process's own heartbeat no longer
	// tells it who else is there, and how long a newcomer is silent: whoever
	// gives credit has beaten, and so heard of everyone, within this time.
	beatStale = beatEvery + beatEvery/2
)

// fleet is what a limiter knows of its fellow processes.
type fleet struct {
	hint  int64        // HubConfig.FleetSize
	n     atomic.Int64 // the most that any of the last counts said
	beats atomic.Int64 // answered
	first atomic.Int64 // ns at which the first without a gap was answered
	last  atomic.Int64 // ns at which the last answered one was sent

	// The heartbeat's own.
	counts [countsKept]int64 // the last counts
	beaten int64             // µs of Redis time of the last answered one; 0: there was none
	loaded bool              // the batch script is known to Redis
	small  bool              // it was said that C is 0
	name   *string           // the identity of the last one
}

// countsKept is how many counts must agree that the fleet has shrunk. A Redis
// that was wiped counts one process at first, and the others within a beat:
// taking that for N would give each of them everybody's credit and share.
const countsKept = 3

// counted notes the answer to a heartbeat that was sent at sent.
func (f *fleet) counted(n, sent, now int64) {
	if f.beats.Load() == 0 || sent-f.last.Load() > int64(beatStale) {
		f.first.Store(now) // others may have come and gone unseen
	}
	i := f.beats.Add(1)
	f.counts[i%countsKept] = n
	f.n.Store(slices.Max(f.counts[:]))
	f.last.Store(sent)
}

// size is N: counted, or the hint until two heartbeats have counted.
func (f *fleet) size() int64 {
	n := max(1, f.n.Load())
	if f.beats.Load() < 2 {
		n = max(n, f.hint)
	}
	return n
}

// known reports whether N may be trusted for credit: this process has been
// seen by all others and has seen them, lately.
func (f *fleet) known(now int64) bool {
	return f.beats.Load() >= 2 && now-f.first.Load() >= int64(beatStale) && now < f.ends()
}

// ends is until when a count may be believed.
func (f *fleet) ends() int64 { return f.last.Load() + int64(beatStale) + 1 }

// watch ends all words when the first of the fleets that are known no longer
// is: credit is worth nothing then.
func (h *Hub) watch(now int64) {
	first := int64(math.MaxInt64)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.limiters {
		if ends := l.fleet.ends(); ends > now {
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
		timer.Reset(beatEvery)
		l.overflow.release(l.hub.clock.Now())
		l.changeSwitch(func(*switches) {}) // for a line of the log that is due
		l.beatDenials()
		l.heartbeat(l.ctx, false)
	}
}

// leave takes the process out of the fleet, after its last heartbeat: one
// that arrived later would bring it back.
func (l *Limiter) leave() {
	l.stopOnce.Do(func() { close(l.stopBeat) })
	<-l.beaten
	l.heartbeat(l.hub.ctx, true)
}

// heartbeat tells the fleet that this process is there, or leaves. It gives
// up when ctx ends.
func (l *Limiter) heartbeat(ctx context.Context, leave bool) {
	h, f := l.hub, &l.fleet
	br := h.breaker(h.names.FleetTag(l.cfg.Name))
	call, ok := br.Begin()
	if !ok {
		return
	}
	if name := h.beatsAs.Load(); name != f.name {
		f.name, f.beaten = name, 0 // Redis has not heard of it
	}
	sent := time.Now()
	given := h.cfg.SyncTimeout + h.engine.Late()
	bounded, cancel := context.WithTimeout(ctx, given)
	beat, err := h.runner.Heartbeat(bounded, wire.Pulse{
		Fleet: h.names.Fleet(l.cfg.Name), Switch: h.names.Switch(l.cfg.Name), Process: *f.name,
		Expiry: beatExpiry, Leave: leave, Seen: l.told(), TTL: switchTTL,
	})
	cancel()
	if err != nil && ctx.Err() != nil {
		err = context.Canceled // closing: says nothing of Redis
	}
	call.End(h.engine.Outcome(given, time.Since(sent), err))
	h.beats.Add(1)
	if err != nil || leave {
		return
	}
	received := h.clock.Now()
	l.heardSwitch(beat.Flag, beat.Now)
	before := f.size()
	f.counted(int64(beat.Alive), h.clock.At(sent), received)
	h.watch(received)
	if f.size() != before {
		h.clock.Void() // C is another
	}
	h.clocks.heard(h.names.FleetTag(l.cfg.Name), beat.Now, h.clock.At(sent), received)
	if beat.Before < f.beaten {
		l.suspect()
	}
	f.beaten = beat.Now
	if !f.small && f.known(h.clock.Now()) && l.givesCredit() && !static(l.rules.Load().limit) && l.credit(l.rules.Load(), f.size()) == 0 {
		f.small = true
		h.log.small(l, f.size())
	}
	if !f.loaded {
		f.loaded = l.loadScript(ctx)
	}
	if f.loaded && f.beats.Load() >= 2 {
		l.readyOnce.Do(func() { close(l.ready) })
	}
}

// loadScript makes Redis know the batch script before the first sync needs it,
// by a batch of nothing. In a cluster the other masters learn it when a sync
// first meets them, at the price of one round trip.
func (l *Limiter) loadScript(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.hub.cfg.SyncTimeout)
	defer cancel()
	_, err := l.hub.runner.Batch(ctx, wire.Envelope{}, nil)
	l.hub.beats.Add(1)
	return err == nil
}
