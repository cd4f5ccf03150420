package member

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

const (
	// textTTL is the time for which Redis keeps the directory of the groups and their names without a heartbeat.
	textTTL = 24 * time.Hour
	// renewEvery is the time after which a process writes the names of its group again, and tells its settings again,
	// so that they do not expire. It is jittered.
	renewEvery = time.Hour
	// soonest is the least time from a heartbeat to one that is sent because keys are wanted.
	soonest = PulseEvery / 2
	// mostAsks is the most messages of one heartbeat. A second one is sent after another group of processes has
	// appeared.
	mostAsks = 4
	// mostBefore is the most groups that a heartbeat takes the process out of. In others it expires.
	mostBefore = 8
)

// Heart tells the fleet once a second that this process is alive, with one message for all limiters of the hub. The
// processes that have the same limiters form a group, which Redis counts. See
// docs/decisions/0042-one-heartbeat-for-a-hub.md.
type Heart struct {
	Pace     Pace
	Wanted   Wanted
	Paused   Paused
	Messages atomic.Uint64 // heartbeats, and messages about settings and scripts
	Trip     atomic.Int64  // ns; the round trip of the last heartbeat, without what this process was late by
	Again    atomic.Bool   // a setting was changed here, or Redis has lost its memory: see news
	watching atomic.Int64  // ns on the hub's clock: until then heartbeats show a loss in time
	as       atomic.Pointer[string]

	env    Env
	gather time.Duration      // from the first new limiter to the heartbeat that counts it and those that follow
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

// Env is what a heartbeat needs of its hub.
type Env struct {
	Context context.Context // ends with Close
	Clock   *clock.Clock
	Log     *tell.Log
	Names   lua.Names
	Runner  *runner.Runner
	Engine  *ratesync.Engine
	Breaker func(tag int) *circuit.Breaker
	Clocks  *Clocks
	Timeout time.Duration // HubConfig.SyncTimeout
	Permits Permits       // of the limiters of calls in flight
	// Limiters returns all limiters, sorted by name.
	Limiters func() []*Party
	// Beat is called once a second, whether a message is sent or not.
	Beat func()
	// Sized is called each second and after each count.
	Sized func()
	// Return makes the keys with these marks return units that this process does not use.
	Return func(marks map[string]bool)
	// Suspect is called when Redis has forgotten a heartbeat: it may have lost keys.
	Suspect func()
}

// Permits is the membership of a process that holds permits: it goes with the heartbeats.
type Permits interface {
	Holds() bool          // must the process be heard of each second?
	Beat() *permits.Pulse // nil: the hub has no limiter of calls in flight
	Miss(p *permits.Pulse)
	Beaten(p *permits.Pulse, sent, received, losses int64, beats []int64)
	Rename(process string)
}

// NewHeart returns a heartbeat of a process. Limiters that come within gather are counted together.
func NewHeart(process string, gather time.Duration, env Env) *Heart {
	b := &Heart{
		env: env, gather: gather, Pace: newPace(), Wanted: newWanted(), joined: make(chan struct{}, 1), leaves: make(chan chan struct{}),
	}
	b.Paused = newPaused(b.Wanted.told)
	b.as.Store(&process)
	return b
}

// Rename gives the heartbeats another identity. The record of the old one expires in Redis.
func (b *Heart) Rename(process string) { b.as.Store(&process) }

// Watches reports whether heartbeats show within a second and a half that their server has lost its data.
func (b *Heart) Watches() bool { return b.env.Clock.Now() < b.watching.Load() }

// Join counts a new limiter in a heartbeat that is due soon.
func (b *Heart) Join() {
	select {
	case b.joined <- struct{}{}:
	default:
	}
}

// Run runs the heartbeat until the hub closes.
func (b *Heart) Run() {
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
		case <-b.Pace.woken:
			due = true
		case <-b.Wanted.told:
			if since := time.Since(b.Pace.last); since < soonest { // others have been told just now
				timer.Reset(soonest - since)
				continue
			}
			due = true
		case left = <-b.leaves:
			due = true
		case <-b.env.Context.Done():
			return
		}
		joining = false
		timer.Reset(PulseEvery)
		select {
		case <-b.joined: // this heartbeat counts it
		default:
		}
		b.env.Clock.Age()
		b.env.Beat()
		n := Size(b.env.Limiters())
		b.env.Sized()
		if b.env.Permits.Holds() {
			n = 1 // a process that holds permits must be heard of each second
		}
		if b.Pace.due(time.Now(), n) || due {
			changed, ok := b.round(b.env.Context)
			if left != nil {
				close(left)
			}
			switch {
			case ok:
				b.settle(b.env.Context, changed)
			case b.env.Permits.Holds():
				timer.Reset(PulseEvery / 4) // the next one must be answered before the membership ends
			}
		}
	}
}

// present returns the limiters that are counted, sorted by name.
func (b *Heart) present() []*Party {
	return slices.DeleteFunc(b.env.Limiters(), func(l *Party) bool { return l.Left.Load() })
}

// Leave takes limiters of this process out of their fleets, and waits for the heartbeat that says so. A heartbeat in
// flight would bring the process back, so that one ends first.
func (b *Heart) Leave(limiters []*Party) {
	if len(limiters) == 0 { // there may be no goroutine
		return
	}
	for _, l := range limiters {
		l.Left.Store(true)
	}
	done := make(chan struct{})
	select {
	case b.leaves <- done:
	case <-b.env.Context.Done():
		return
	}
	select {
	case <-done:
	case <-b.env.Context.Done():
	}
}

// round sends a heartbeat. It asks again until the answer counts all groups that may share a limiter with this process.
// A count without one of them would be too low, so it is not used. round returns the time of the last change of a
// setting, and false without a count.
func (b *Heart) round(ctx context.Context) (changed int64, ok bool) {
	if name := b.as.Load(); name != b.name {
		b.name, b.expires, b.in = name, 0, nil // the identity is new to Redis
		b.env.Permits.Rename(*name)
	}
	ls := b.present()
	if len(ls) == 0 {
		b.end(ctx)
		return 0, false
	}
	limiters, terms := make([]string, len(ls)), b.terms(ls)
	for i, l := range ls {
		limiters[i] = l.Name
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
			b.counted(ls, func(l *Party) (processes, accounts int64) {
				return b.book.Processes(count, l.Name), b.book.Accounts(count, l.Name, l.Classes)
			}, sent, received)
			b.compare(count, ls)
			if !b.loaded {
				b.loaded = b.loadScript(ctx)
			}
			return beat.Changed, true
		}
	}
	return 0, false
}

// send sends one message for a group and counts other groups. It returns the times of the hub's clock at which the
// message was sent and answered, and false without an answer.
func (b *Heart) send(ctx context.Context, own, text string, others []string) (beat wire.Beat, sent, received int64, ok bool) {
	p := b.pulse(own)
	for _, id := range others {
		p.Others = append(p.Others, b.env.Names.Group(id))
	}
	nameless := b.book.Nameless(others, wire.MaxNamesRead)
	for _, id := range nameless {
		p.Read = append(p.Read, b.env.Names.GroupNames(id))
	}
	if (b.named != own || !time.Now().Before(b.renew)) && len(text) <= wire.MaxNames {
		p.Text = text
	}
	if !slices.Contains(b.in, own) { // it may have this process from now on, even without an answer
		b.in = append(b.in[max(0, len(b.in)-mostBefore):], own)
	}
	if p.Member = b.env.Permits.Beat(); p.Member != nil {
		p.Members = b.env.Names.Members()
	}
	p.Marks = b.Wanted.take()
	p.Known, p.Pauses = b.Paused.take(b.env.Clock.Now())
	sent, received, err := b.exchange(ctx, func(ctx context.Context) (err error) {
		beat, err = b.env.Runner.Heartbeat(ctx, p)
		return err
	})
	if errors.Is(err, wire.ErrRefused) {
		b.env.Log.Event(tell.MsgCrowded, slog.Any("cause", err))
		b.plain = true // processes that differ only in their limits may share a group then
	}
	if err != nil {
		b.env.Permits.Miss(p.Member)
		return beat, 0, 0, false
	}
	b.Trip.Store(int64(b.env.Engine.Without(time.Duration(received - sent))))
	b.env.Permits.Beaten(p.Member, sent, received, beat.Losses, beat.Beats)
	lost := beat.Before < b.expires
	if b.expires > 0 && !lost {
		b.watching.Store(sent + int64(census.Stale)) // the next heartbeat is due before that
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
	b.env.Clocks.Heard(b.env.Names.FleetTag(), beat.Now, sent, received)
	b.env.Return(b.Wanted.news(beat.Wanted))
	if b.Paused.heard(&beat, sent, received) {
		b.env.Clock.Void() // after the pauses are known: see keys.Entry.End
	}
	if lost {
		b.Paused.lost()
		b.named = "" // the names are lost too
		b.Again.Store(true)
		b.env.Suspect()
	}
	return beat, sent, received, true
}

// pulse returns a heartbeat of a group that counts no other. It takes the process out of all groups that may have it.
func (b *Heart) pulse(own string) wire.Pulse {
	n := b.env.Names
	p := wire.Pulse{
		Group: n.Group(own), Directory: n.Groups(), Changed: n.Changed(), Names: n.GroupNames(own), Wanted: n.Wanted(), Paused: n.Paused(),
		ID: own, Process: *b.name, Expiry: b.Pace.expiry(), TTL: textTTL, Version: b.book.Version(),
	}
	for _, id := range b.in {
		if id != own {
			p.Before = append(p.Before, n.Group(id))
		}
	}
	return p
}

// end takes the process out of its group: it has no limiter any more.
func (b *Heart) end(ctx context.Context) {
	if len(b.in) == 0 {
		return
	}
	p := b.pulse(b.in[len(b.in)-1])
	p.Leave = true
	if p.Member = b.env.Permits.Beat(); p.Member != nil {
		p.Members = b.env.Names.Members()
	}
	_, _, _ = b.exchange(ctx, func(ctx context.Context) error { // it expires in any case
		_, err := b.env.Runner.Heartbeat(ctx, p)
		return err
	})
	b.in, b.expires = nil, 0
}

// exchange sends one message of the heartbeat's tag, unless the breaker is open. It returns the times of the hub's
// clock at which the message was sent and answered.
func (b *Heart) exchange(ctx context.Context, send func(context.Context) error) (sent, received int64, err error) {
	call, ok := b.env.Breaker(b.env.Names.FleetTag()).Begin()
	if !ok {
		return 0, 0, errOpen
	}
	b.env.Clock.Begin()
	defer b.env.Clock.End()
	began := time.Now()
	timeout := b.env.Engine.Timeout()
	if b.env.Permits.Holds() { // the next one must be answered before the membership ends
		timeout = min(timeout, max(b.env.Timeout, PulseEvery))
	}
	if b.Trip.Load() == 0 { // the first one opens a connection, and Redis may be far
		timeout = max(timeout, 4*b.env.Timeout)
	}
	given := timeout + b.env.Engine.Late()
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
	call.End(b.env.Engine.Outcome(given, time.Since(began), said))
	b.Messages.Add(1)
	return b.env.Clock.At(began), b.env.Clock.Now(), err
}

// errOpen is the error of a message that was not sent, because the breaker is open.
var errOpen = errors.New("hybrid: the breaker is open")

// loadScript sends an empty batch, so that Redis has the batch script before the first sync needs it. In a cluster each
// other master gets it with the first sync that it receives, at the cost of one round trip.
func (b *Heart) loadScript(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, b.env.Engine.Timeout())
	defer cancel()
	_, err := b.env.Runner.Batch(ctx, wire.Envelope{}, nil)
	b.Messages.Add(1)
	return err == nil
}
