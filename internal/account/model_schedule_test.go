package account

import (
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// A schedule is a list of events; one that does not apply does nothing, so
// that a schedule can be shrunk by leaving events out.
type modelEvent struct {
	kind modelKind
	p    int           // the process
	n    int64         // a cost, or which message
	wait time.Duration // before it
}

type modelKind uint8

const (
	evCall    modelKind = iota // a decision for n
	evSpend                    // the common path for n
	evFreeze                   // a sync goes out
	evRetry                    // it goes out again
	evArrive                   // the n-th message of p arrives: at Redis, or back
	evRepeat                   // it arrives, and will again
	evLose                     // it does not
	evRound                    // a whole sync at this instant
	evLeave                    // a waiting call's context ends
	evTimeout                  // a waiting call has waited for MaxWait
	evPause                    // p does nothing for as long as the next wait
	evEvict                    // p forgets the key, if it may
	evExact                    // a call for n goes to Redis by itself
	evCredit                   // p believes that C is n, if that is less
	evBroken                   // p's breaker opens, or closes
	evCrash                    // p restarts
	evDrop                     // Redis refuses p's batch for good

	evWipe          // Redis loses everything
	evLoseKey       // Redis loses the state
	evLoseEnvelopes // Redis loses the envelopes
	evResync        // a whole sync at this instant, if only to tell p's view
	evClock         // Redis's clock steps by n µs
	evJoin          // p starts, if it is not running
	evDepart        // p shuts down, if it owes nothing
	evNoBeat        // p's next n heartbeats are lost
	evLoseFleet     // Redis loses the heartbeats
	evSave          // a replica has got so far
	evFailover      // Redis goes back to that
	evEdge          // the time is near the end of the window: see edges

	evFlood   // phrases, when a plan is drawn: as many calls as can be
	evSlow    // a sync whose answer is slow, and calls meanwhile
	evRefused // a sync that Redis runs and its process gives up, and what others do then
	evCross   // a sync that the end of the window overtakes, and calls meanwhile

	evLimit // p gets the other limit: last, so that what other schedules draw stays
)

var modelKindNames = [...]string{
	"evCall", "evSpend", "evFreeze", "evRetry", "evArrive", "evRepeat", "evLose",
	"evRound", "evLeave", "evTimeout", "evPause", "evEvict", "evExact", "evCredit", "evBroken", "evCrash", "evDrop",
	"evWipe", "evLoseKey", "evLoseEnvelopes", "evResync", "evClock", "evJoin", "evDepart", "evNoBeat", "evLoseFleet", "evSave", "evFailover", "evEdge",
	"evFlood", "evSlow", "evRefused", "evCross", "evLimit",
}

// String is the event as a Go literal, to be pasted into a table.
func (e modelEvent) String() string {
	return fmt.Sprintf("{%s, %d, %d, %d},", modelKindNames[e.kind], e.p, e.n, e.wait)
}

// modelPlan is a fleet and a schedule: all that a run depends on.
type modelPlan struct {
	limit   hybridlimit.Limit
	procs   int
	mode    Mode
	credit  int64
	every   int64
	blind   bool
	greedy  bool // see world
	plain   bool // see modelRedis
	maxWait time.Duration
	warm    bool // it starts long after the processes did
	outage  bool // breakers open and the fallback admits: the bound is not for this
	hazard  hazard
	events  []modelEvent

	overshoot float64 // with hazMembers, in place of credit
	// other is the second limit of hazLimit, nowhere above the first. An op under it gives the state its own TTL, and a state that it
	// has filled up is forgotten: to the first limit that is a full bucket, early. Unless short is set, states live as long as the first
	// limit needs, so that the search finds what else there is. TestModelLimits has the schedule.
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
		RelookIn: MaxView, Fallback: Fallback{Policy: FallbackDenyAll},
	}
	if pl.outage {
		t.Fallback = r.Fallback(FallbackShare, 0, t.N)
	}
	w := newWorld(t, pl.procs)
	if w.other = pl.other; w.other.Rate > 0 && !pl.short {
		w.redis.least = 2 * pl.limit.TimeToFull().Microseconds()
	}
	w.losses.prompt = pl.hazard&hazPrompt != 0
	w.greedy, w.mutant, w.redis.mutant, w.redis.plain = pl.greedy, m, m, pl.plain && r.Window.Period == 0
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
		case evArrive, evRepeat, evLose: // the network goes on, but not to p
			if i := w.find(p, e.n); i < 0 || w.net[i].reply != nil && e.kind != evLose {
				return
			}
		default:
			return
		}
	}
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
		p.loaded = w.now - 2*w.t.Tick // on resuming, the epoch has passed
	case evEvict:
		w.evict(p)
	case evExact:
		w.exact(p, min(e.n+1, w.t.Limit.BurstSize()))
	case evCredit:
		p.credit = min(e.n, w.t.Credit)
		w.void(p)
	case evBroken:
		p.broken = !p.broken && w.t.Fallback.Policy != FallbackDenyAll
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
	}
}

// redisEvent runs what happens to no process.
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

// find is the n-th message of p, counted around; negative: there is none.
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

// move takes a message on.
func (w *world) move(p *proc, n int64, how modelKind) {
	i := w.find(p, n)
	if i < 0 {
		return
	}
	m := w.net[i]
	if how != evRepeat {
		w.net = append(w.net[:i], w.net[i+1:]...)
	}
	switch {
	case how == evLose:
	case m.reply == nil:
		if r, ok := w.redis.under(m.plan).apply(m.batch, m.op, w.now); ok {
			w.logf("Redis applies batch %d of p%d", m.batch.seq, p.id)
			w.net = append(w.net, message{batch: m.batch, reply: &r})
		}
	case p.frozen != nil && p.frozen.batch == m.batch:
		w.settle(p, *m.reply)
	}
}

// round answers p's frozen batch now, sending one if there is none.
func (w *world) round(p *proc) {
	if p.frozen == nil {
		if !w.freeze(p) {
			return
		}
		w.net = w.net[:len(w.net)-1] // it has arrived
	} else {
		w.spoilRetry(p)
	}
	if r, ok := w.redis.under(p.frozen.plan).apply(p.frozen.batch, p.frozen.op, w.now); ok {
		w.settle(p, r)
	}
}

// quiesce lets everybody finish over a network that no longer fails. It
// reports whether they did.
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
