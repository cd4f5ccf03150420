package account

import (
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// modelEvent is one event of a schedule. An event that does not apply does nothing, so a schedule can be shrunk by removing
// events.
type modelEvent struct {
	kind modelKind
	p    int           // the process
	n    int64         // a cost, or the number of a message
	wait time.Duration // before the event
}

type modelKind uint8

const (
	evCall    modelKind = iota // a decision for n units
	evSpend                    // the fast path for n units
	evFreeze                   // a sync is sent; 3: after p hears that another process wants units
	evRetry                    // the sync is sent again
	evArrive                   // the n-th message of p arrives, at Redis or back at p
	evRepeat                   // it arrives, and will arrive again
	evLose                     // it is lost
	evRound                    // a whole sync at this instant
	evLeave                    // the context of a waiting call ends
	evTimeout                  // a waiting call has waited for MaxWait
	evPause                    // p does nothing for n ms
	evEvict                    // p forgets the key, if permitted
	evExact                    // a direct call for n units
	evCredit                   // p believes that C is n, if that is less
	evBroken                   // p's breaker opens or closes
	evCrash                    // p restarts
	evDrop                     // Redis refuses p's batch for good

	evWipe          // Redis loses all data
	evLoseKey       // Redis loses the state
	evLoseEnvelopes // Redis loses the envelopes
	evResync        // a whole sync at this instant, even if only to send p's view
	evClock         // Redis's clock steps by n µs
	evJoin          // p starts, if it is not running
	evDepart        // p shuts down, if it owes nothing
	evNoBeat        // the next n heartbeats of p are lost
	evLoseFleet     // Redis loses the heartbeats
	evSave          // a replica copies the data
	evFailover      // Redis goes back to the data of that replica
	evEdge          // time passes until near the end of the window: see edges

	evFlood   // used only when a plan is drawn: as many calls as possible
	evSlow    // a sync with a slow answer, and calls meanwhile
	evRefused // a sync that Redis runs and its process gives up, and the calls of the others after it
	evCross   // a sync that is in flight at the end of the window, and calls meanwhile

	evLimit // p gets the other limit; this kind and the next are last, so that the draws of other schedules do not change
	evLife  // p wants leases of n seconds at most; 0: 4
)

var modelKindNames = [...]string{
	"evCall", "evSpend", "evFreeze", "evRetry", "evArrive", "evRepeat", "evLose",
	"evRound", "evLeave", "evTimeout", "evPause", "evEvict", "evExact", "evCredit", "evBroken", "evCrash", "evDrop",
	"evWipe", "evLoseKey", "evLoseEnvelopes", "evResync", "evClock", "evJoin", "evDepart", "evNoBeat", "evLoseFleet", "evSave", "evFailover", "evEdge",
	"evFlood", "evSlow", "evRefused", "evCross", "evLimit", "evLife",
}

// String returns the event as a Go literal, to be pasted into a table.
func (e modelEvent) String() string {
	return fmt.Sprintf("{%s, %d, %d, %d},", modelKindNames[e.kind], e.p, e.n, e.wait)
}

// modelPlan is a fleet and a schedule. A run depends on nothing else.
type modelPlan struct {
	limit   hybridlimit.Limit
	procs   int
	mode    Mode
	credit  int64
	every   int64
	blind   bool
	greedy  bool // see world
	bare    bool // see world
	plain   bool // see modelRedis
	maxWait time.Duration
	warm    bool // the run starts long after the processes did
	outage  bool // breakers open and the fallback admits; the bound does not apply
	hazard  hazard
	events  []modelEvent

	floors    []float64 // see world
	overshoot float64   // used with hazMembers, instead of credit
	paced     bool      // used with hazMembers: idle processes beat less often
	// other is the second limit of hazLimit. It is nowhere above the first. An op under it gives the state a TTL by the second
	// limit. A state that is full under the second limit is forgotten. Under the first limit this is a full bucket, too early.
	// Unless short is set, states live as long as the first limit requires, so that the search finds other errors.
	// TestModelLimits has the schedule of this case.
	other hybridlimit.Limit
	short bool
}

func (pl *modelPlan) String() string {
	head := *pl
	head.events = nil
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", head)
	for _, e := range pl.events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

func (pl *modelPlan) world(m mutant) *world {
	r := NewPlan(pl.limit)
	t := Conditions{
		Bucket: r.Bucket, Window: r.Window, Limit: pl.limit, Mode: pl.mode, N: int64(pl.procs), Credit: pl.credit, Every: pl.every,
		Blind: pl.blind, RTT: int64(time.Millisecond), Tick: int64(tick), MaxWait: int64(pl.maxWait),
		RelookIn: MaxView, Fallback: Fallback{Size: fallback.Size{Kind: fallback.KindDenyAll}},
	}
	if pl.outage {
		t.Fallback = r.Fallback(fallback.KindShare, 0, t.N)
	}
	w := newWorld(t, pl.procs)
	pl.classes(w)
	if w.other = pl.other; w.other.Rate > 0 && !pl.short {
		w.redis.least = 2 * pl.limit.TimeToFull().Microseconds()
	}
	w.losses.prompt = pl.hazard&hazPrompt != 0
	w.greedy, w.bare, w.mutant, w.redis.mutant, w.redis.plain = pl.greedy, pl.bare, m, m, pl.plain && r.Window.Period == 0
	if pl.warm {
		w.now = 3 * int64(pl.limit.TimeToFull())
	}
	if pl.hazard&hazMembers != 0 {
		pl.populate(w)
	}
	return w
}

// play runs one event.
func (w *world) play(e modelEvent) {
	w.advance(int64(e.wait))
	p := w.procs[e.p%len(w.procs)]
	if w.redisEvent(e) || p.away {
		if p.away && e.kind == evJoin {
			w.start(e.p % len(w.procs))
			w.logf("p%d joins", p.id)
		}
		return
	}
	if w.now < p.asleep && e.kind != evCrash {
		switch e.kind {
		case evArrive, evRepeat, evLose: // the network continues, but nothing reaches p
			if i := w.find(p, e.n); i < 0 || w.net[i].reply != nil && e.kind != evLose {
				return
			}
		default:
			return
		}
	}
	w.wake(p)
	for w.now >= p.asleep && w.overdue(p) {
		w.leave(p, true)
	}
	switch e.kind {
	case evCall:
		if n := min(e.n, w.burst(p)); !w.spend(p, n) {
			w.call(p, n)
		}
	case evSpend:
		w.spend(p, min(e.n, w.burst(p)))
	case evFreeze:
		if e.n == 3 { // a heartbeat tells that another process wants units
			p.s.Want(w.terms(p), w.now)
		}
		w.freeze(p)
	case evRetry:
		w.retry(p)
	case evArrive, evRepeat, evLose:
		w.move(p, e.n, e.kind)
	case evRound:
		w.round(p)
	case evLeave, evTimeout:
		w.leave(p, e.kind == evTimeout)
	case evPause:
		p.asleep = w.now + e.n*int64(time.Millisecond)
		p.loaded = w.now - 2*w.t.Tick // on resuming, the tick has passed
	case evEvict:
		w.evict(p)
	case evExact:
		w.exact(p, min(e.n+1, w.t.Limit.BurstSize()))
	case evCredit:
		p.credit = min(e.n, w.t.Credit)
		w.void(p)
	case evBroken:
		p.broken = !p.broken && w.t.Fallback.Kind != fallback.KindDenyAll
		w.void(p)
	case evCrash:
		w.crash(e.p % len(w.procs))
		if w.members != nil {
			w.depart(p, true)
		}
	case evDrop:
		w.drop(p)
	case evResync:
		w.resyncing(p)
	case evDepart:
		w.depart(p, false)
	case evNoBeat:
		p.mute = e.n
	case evLimit:
		w.setLimit(p)
	case evLife:
		p.maxLife = e.n
	}
}

// redisEvent runs an event that belongs to no process. It reports whether e is one.
func (w *world) redisEvent(e modelEvent) bool {
	switch e.kind {
	case evWipe, evLoseKey, evLoseEnvelopes, evSave, evFailover:
		w.lose(e.kind)
	case evClock:
		w.stepClock(e.n)
	case evLoseFleet:
		w.loseFleet()
	case evEdge:
		w.toEdge(e.n)
	default:
		return false
	}
	return true
}

// overdue reports whether a call has waited for MaxWait.
func (w *world) overdue(p *proc) bool {
	for _, c := range p.calls {
		if !c.gone && !c.done {
			return w.now-c.at >= w.t.MaxWait
		}
	}
	return false
}

// find returns the index of the n-th message of p, counted around. Negative: there is none.
func (w *world) find(p *proc, n int64) int {
	var own []int
	for i := range w.net {
		if w.net[i].batch.id == p.id {
			own = append(own, i)
		}
	}
	if len(own) == 0 {
		return -1
	}
	return own[n%int64(len(own))]
}

// move moves a message forward.
func (w *world) move(p *proc, n int64, how modelKind) {
	i := w.find(p, n)
	if i < 0 {
		return
	}
	m := w.net[i]
	if how != evRepeat || m.batch.bare() { // it is sent once

		w.net = append(w.net[:i], w.net[i+1:]...)
	}
	switch {
	case how == evLose:
	case m.reply == nil:
		if r, ok := w.redis.under(m.plan, m.span).apply(m.batch, m.op, w.now); ok {
			w.logf("Redis applies batch %d of p%d", m.batch.seq, p.id)
			w.net = append(w.net, message{batch: m.batch, reply: &r})
		}
	case p.frozen != nil && p.frozen.batch == m.batch:
		w.settle(p, *m.reply)
	}
}

// round answers the frozen batch of p now. If there is none, it sends one first.
func (w *world) round(p *proc) {
	if p.frozen == nil {
		if !w.freeze(p) {
			return
		}
		w.net = w.net[:len(w.net)-1] // it has arrived
	} else {
		w.cover(p)
		w.spoilRetry(p)
	}
	if r, ok := w.redis.under(p.frozen.plan, p.frozen.span).apply(p.frozen.batch, p.frozen.op, w.now); ok {
		w.settle(p, r)
	}
}

// quiesce lets all processes finish over a network that no longer fails. It reports whether they did.
func (w *world) quiesce() bool {
	w.net = nil
	for range 2000 {
		busy := false
		for _, p := range w.procs {
			if p.asleep, p.broken = 0, false; p.away {
				continue
			}
			for w.overdue(p) {
				w.leave(p, true)
			}
			w.begin(p)
			if p.frozen != nil || p.waiters.Len() > 0 || p.s.owed()+p.s.local.admitted > 0 {
				w.round(p)
				busy = true
			}
		}
		if !busy {
			return true
		}
		w.advance(int64(time.Millisecond))
	}
	return false
}
