package hybrid

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

const (
	// textTTL is the time for which Redis keeps the directory of the groups and their names without a heartbeat.
	textTTL = 24 * time.Hour
	// renewEvery is the time after which a process writes the names of its group again, and tells its settings again, so that they
	// do not expire. It is jittered.
	renewEvery = time.Hour
	// soonest is the least time from a heartbeat to one that is sent because keys are wanted.
	soonest = pulseEvery / 2
	// mostAsks is the most messages of one heartbeat. A second one is sent after another group of processes has appeared.
	mostAsks = 4
	// mostBefore is the most groups that a heartbeat takes the process out of. In others it expires.
	mostBefore = 8
)

// heartbeat tells the fleet once a second that this process is alive, with one message for all limiters of the hub. The processes
// that have the same limiters form a group, which Redis counts. See docs/decisions/0042-one-heartbeat-for-a-hub.md.
type heartbeat struct {
	hub    *Hub
	gather time.Duration // from the first new limiter to the heartbeat that counts it and those that follow
	pace   pace
	joined chan struct{}      // has room for one: there is a new limiter
	leaves chan chan struct{} // closed after the next heartbeat

	// The rest belongs to the goroutine.
	name    *string  // the identity of the last heartbeat
	expires int64    // µs of Redis's time at which the last answered heartbeat expires; 0: none
	in      []string // ids of the groups that may have this process
	book    groups.Book
	plain   bool      // the names of the group say no limits
	named   string    // id of the group whose names were written last
	renew   time.Time // write them again then
	loaded  bool      // Redis has the batch script
	news    news
}

func newHeartbeat(h *Hub, gather time.Duration) *heartbeat {
	return &heartbeat{hub: h, gather: gather, pace: newPace(), joined: make(chan struct{}, 1), leaves: make(chan chan struct{})}
}

// join counts a new limiter in a heartbeat that is due soon.
func (b *heartbeat) join() {
	select {
	case b.joined <- struct{}{}:
	default:
	}
}

// beat runs the heartbeat until the hub closes.
func (b *heartbeat) beat() {
	h := b.hub
	defer h.wg.Done()
	timer := time.NewTimer(b.gather)
	defer timer.Stop()
	joining := true
	for {
		var left chan struct{}
		due := false // whatever the pace
		select {
		case <-timer.C:
			due = joining
		case <-b.joined:
			if !joining {
				joining = true
				timer.Reset(b.gather)
			}
			continue
		case <-b.pace.woken:
			due = true
		case <-h.wanted.told:
			if since := time.Since(b.pace.last); since < soonest { // others have been told just now
				timer.Reset(soonest - since)
				continue
			}
			due = true
		case left = <-b.leaves:
			due = true
		case <-h.ctx.Done():
			return
		}
		joining = false
		timer.Reset(pulseEvery)
		select {
		case <-b.joined: // this heartbeat counts it
		default:
		}
		h.clock.Age()
		for _, l := range h.all() {
			l.terms.shares.Release(h.clock.Now())
			l.control.Beat()
			for _, v := range l.views {
				v.beatDenials()
			}
			if l.flight != nil {
				l.flight.sayFloor()
			}
		}
		size := h.fleetSize()
		if h.permits.keys.Load() > 0 {
			size = 1 // a process that holds permits must be heard of each second
		}
		if b.pace.due(time.Now(), size) || due {
			changed, ok := b.round(h.ctx)
			if left != nil {
				close(left)
			}
			switch {
			case ok:
				b.settle(h.ctx, changed)
			case h.permits.keys.Load() > 0:
				timer.Reset(pulseEvery / 4) // the next one must be answered before the membership ends
			}
		}
	}
}

// present returns the limiters that are counted, sorted by name.
func (h *Hub) present() []*Limiter {
	return slices.DeleteFunc(h.named(), func(l *Limiter) bool { return l.left.Load() })
}

// leave takes limiters of this process out of their fleets, and waits for the heartbeat that says so. A heartbeat in flight would
// bring the process back, so that one ends first.
func (h *Hub) leave(limiters ...*Limiter) {
	if len(limiters) == 0 { // there may be no goroutine
		return
	}
	for _, l := range limiters {
		l.left.Store(true)
	}
	done := make(chan struct{})
	select {
	case h.heart.leaves <- done:
	case <-h.ctx.Done():
		return
	}
	select {
	case <-done:
	case <-h.ctx.Done():
	}
}

// round sends a heartbeat. It asks again until the answer counts all groups that may share a limiter with this process. A count
// without one of them would be too low, so it is not used. round returns the time of the last change of a setting, and false
// without a count.
func (b *heartbeat) round(ctx context.Context) (changed int64, ok bool) {
	h := b.hub
	if name := h.beatsAs.Load(); name != b.name {
		b.name, b.expires, b.in = name, 0, nil // the identity is new to Redis
		h.permits.rename(*name)
	}
	ls := h.present()
	if len(ls) == 0 {
		b.end(ctx)
		return 0, false
	}
	limiters, terms := make([]string, len(ls)), h.terms(ls, b.plain)
	for i, l := range ls {
		limiters[i] = l.cfg.Name
	}
	own := groups.ID(terms)
	for range mostAsks {
		others := b.book.Others(own, limiters)
		beat, sent, received, ok := b.send(ctx, own, groups.Text(terms), others)
		if !ok {
			return 0, false
		}
		count := groups.Count{Own: beat.Alive, Others: others, Alive: beat.Others}
		if b.book.Complete(count, own, limiters) {
			h.counted(ls, func(l *Limiter) (processes, accounts int64) {
				return b.book.Processes(count, l.cfg.Name), b.book.Accounts(count, l.cfg.Name, int64(len(l.views)))
			}, sent, received)
			h.compareLimits(&b.book, count, ls)
			if !b.loaded {
				b.loaded = h.loadScript(ctx)
			}
			return beat.Changed, true
		}
	}
	return 0, false
}

// send sends one message for a group and counts other groups. It returns the times of the hub's clock at which the message was sent
// and answered, and false without an answer.
func (b *heartbeat) send(ctx context.Context, own, text string, others []string) (beat wire.Beat, sent, received int64, ok bool) {
	h := b.hub
	p := b.pulse(own)
	for _, id := range others {
		p.Others = append(p.Others, h.names.Group(id))
	}
	nameless := b.book.Nameless(others, wire.MaxNamesRead)
	for _, id := range nameless {
		p.Read = append(p.Read, h.names.GroupNames(id))
	}
	if (b.named != own || !time.Now().Before(b.renew)) && len(text) <= wire.MaxNames {
		p.Text = text
	}
	if !slices.Contains(b.in, own) { // it may have this process from now on, even without an answer
		b.in = append(b.in[max(0, len(b.in)-mostBefore):], own)
	}
	if p.Member = h.permits.beat(); p.Member != nil {
		p.Members = h.names.Members()
	}
	p.Marks = h.wanted.take()
	sent, received, err := h.exchange(ctx, func(ctx context.Context) (err error) {
		beat, err = h.runner.Heartbeat(ctx, p)
		return err
	})
	if errors.Is(err, wire.ErrRefused) {
		h.log.Event(tell.MsgCrowded, slog.Any("cause", err))
		b.plain = true // processes that differ only in their limits may share a group then
	}
	if err != nil {
		h.permits.miss(p.Member)
		return beat, 0, 0, false
	}
	h.trip.Store(int64(h.engine.Without(time.Duration(received - sent))))
	h.permits.beaten(p.Member, sent, received, beat.Losses, beat.Beats)
	lost := beat.Before < b.expires
	if b.expires > 0 && !lost {
		h.watching.Store(sent + int64(census.Stale)) // the next heartbeat is due before that
	}
	b.in, b.expires = []string{own}, beat.Now+p.Expiry.Microseconds()
	if p.Text != "" {
		b.named, b.renew = own, time.Now().Add(time.Duration(clock.Jitter(int64(renewEvery))))
	}
	if beat.Told {
		b.book.Directory(beat.Version, beat.Groups)
	}
	for i, id := range nameless {
		b.book.Named(id, beat.Names[i])
	}
	h.clocks.heard(h.names.FleetTag(), beat.Now, sent, received)
	h.returnWanted(h.wanted.news(beat.Wanted))
	if lost {
		b.named = "" // the names are lost too
		b.news.again.Store(true)
		h.suspect()
	}
	return beat, sent, received, true
}

// pulse returns a heartbeat of a group that counts no other. It takes the process out of all groups that may have it.
func (b *heartbeat) pulse(own string) wire.Pulse {
	n := b.hub.names
	p := wire.Pulse{
		Group: n.Group(own), Directory: n.Groups(), Changed: n.Changed(), Names: n.GroupNames(own), Wanted: n.Wanted(),
		ID: own, Process: *b.name, Expiry: b.pace.expiry(), TTL: textTTL, Version: b.book.Version(),
	}
	for _, id := range b.in {
		if id != own {
			p.Before = append(p.Before, n.Group(id))
		}
	}
	return p
}

// end takes the process out of its group: it has no limiter any more.
func (b *heartbeat) end(ctx context.Context) {
	if len(b.in) == 0 {
		return
	}
	p := b.pulse(b.in[len(b.in)-1])
	p.Leave = true
	if p.Member = b.hub.permits.beat(); p.Member != nil {
		p.Members = b.hub.names.Members()
	}
	_, _, _ = b.hub.exchange(ctx, func(ctx context.Context) error { // it expires in any case
		_, err := b.hub.runner.Heartbeat(ctx, p)
		return err
	})
	b.in, b.expires = nil, 0
}

// exchange sends one message of the heartbeat's tag, unless the breaker is open. It returns the times of the hub's clock at which the
// message was sent and answered.
func (h *Hub) exchange(ctx context.Context, send func(context.Context) error) (sent, received int64, err error) {
	call, ok := h.breaker(h.names.FleetTag()).Begin()
	if !ok {
		return 0, 0, errOpen
	}
	h.clock.Begin()
	defer h.clock.End()
	began := time.Now()
	given := h.cfg.SyncTimeout + h.engine.Late()
	if h.trip.Load() == 0 { // the first one opens a connection, and Redis may be far
		given += 3 * h.cfg.SyncTimeout
	}
	bounded, cancel := context.WithTimeout(ctx, given)
	err = send(bounded)
	cancel()
	said := err
	switch {
	case err != nil && ctx.Err() != nil:
		said = context.Canceled // closing: no evidence about Redis
	case errors.Is(err, wire.ErrRefused):
		said = nil // Redis can serve
	}
	call.End(h.engine.Outcome(given, time.Since(began), said))
	h.beats.Add(1)
	return h.clock.At(began), h.clock.Now(), err
}

// errOpen is the error of a message that was not sent, because the breaker is open.
var errOpen = errors.New("hybrid: the breaker is open")

// loadScript sends an empty batch, so that Redis has the batch script before the first sync needs it. In a cluster each other master
// gets it with the first sync that it receives, at the cost of one round trip.
func (h *Hub) loadScript(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.SyncTimeout)
	defer cancel()
	_, err := h.runner.Batch(ctx, wire.Envelope{}, nil)
	h.beats.Add(1)
	return err == nil
}
