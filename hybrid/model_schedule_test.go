package hybrid

import (
	"fmt"
	"math/rand/v2"
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

	evFlood // phrases, when a plan is drawn: as many calls as can be
	evSlow  // a sync whose answer is slow, and calls meanwhile
)

var modelKindNames = [...]string{
	"evCall", "evSpend", "evFreeze", "evRetry", "evArrive", "evRepeat", "evLose",
	"evRound", "evLeave", "evTimeout", "evPause", "evEvict", "evExact", "evCredit", "evBroken", "evCrash", "evDrop",
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
	events  []modelEvent
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
	r := newRules(pl.limit)
	t := terms{
		bucket: r.bucket, limit: pl.limit, mode: pl.mode, n: int64(pl.procs), credit: pl.credit, every: pl.every,
		blind: pl.blind, rtt: int64(time.Millisecond), tick: int64(tick), maxWait: int64(pl.maxWait),
		relookIn: maxLookAgain, share: shareTerms{policy: FallbackDenyAll},
	}
	if pl.outage {
		l := &Limiter{cfg: Config{}.withDefaults()}
		t.share = l.shareTerms(r, t.n)
	}
	w := newWorld(t, pl.procs)
	w.greedy, w.mutant, w.redis.longLife, w.redis.plain = pl.greedy, m, m == mutLongLife, pl.plain
	if pl.warm {
		w.now = 3 * int64(pl.limit.TimeToFull())
	}
	return w
}

// play runs one event.
func (w *world) play(e modelEvent) {
	w.now += int64(e.wait)
	p := w.procs[e.p%len(w.procs)]
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
		if n := min(e.n, w.t.limit.BurstSize()); !w.spend(p, n) {
			w.call(p, n)
		}
	case evSpend:
		w.spend(p, e.n)
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
		p.loaded = w.now - 2*w.t.tick // on resuming, the epoch has passed
	case evEvict:
		w.evict(p)
	case evExact:
		w.exact(p, min(e.n+1, w.t.limit.BurstSize()))
	case evCredit:
		p.credit = min(e.n, w.t.credit)
	case evBroken:
		p.broken = !p.broken && w.t.share.policy != FallbackDenyAll
	case evCrash:
		w.crash(e.p % len(w.procs))
	case evDrop:
		w.drop(p)
	}
}

// overdue reports whether a call has waited for MaxWait.
func (w *world) overdue(p *proc) bool {
	for _, c := range p.waiters {
		if !c.gone {
			return w.now-c.at >= w.t.maxWait
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
		if r, ok := w.redis.apply(m.batch, m.op, w.now); ok {
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
	}
	if r, ok := w.redis.apply(p.frozen.batch, p.frozen.op, w.now); ok {
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
			p.asleep, p.broken = 0, false
			for w.overdue(p) {
				w.leave(p, true)
			}
			w.begin(p)
			if p.frozen != nil || len(p.waiters) > 0 || p.s.owed()+p.s.share.admitted > 0 {
				w.round(p)
				busy = true
			}
		}
		if !busy {
			return true
		}
		w.now += int64(time.Millisecond)
	}
	return false
}

// drawPlan draws a fleet and a schedule. Each schedule prefers some phrases and
// some waits over others: a uniform choice never gets anywhere in particular.
func drawPlan(r *rand.Rand, mode Mode, faults bool) *modelPlan {
	procs := []int{1, 2, 2, 2, 3, 3, 4}[r.IntN(7)]
	burst := 4 + r.Int64N(27)
	if r.IntN(2) == 0 {
		burst = 4 + r.Int64N(5)
	}
	rates := []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, time.Hour, burst),
		hybridlimit.TokenBucket(1+r.Int64N(10), time.Second, burst),
		hybridlimit.TokenBucket(1+r.Int64N(10), 7*time.Second, burst),
		hybridlimit.TokenBucket(10+r.Int64N(90), time.Second, burst),
		hybridlimit.TokenBucket(1+r.Int64N(1000), time.Second, burst),
		hybridlimit.TokenBucket(200+r.Int64N(800), time.Second, burst+20),
	}
	limit := rates[r.IntN(len(rates))]
	burst = limit.Burst
	pl := &modelPlan{
		limit: limit, procs: procs, mode: mode, every: 1 + r.Int64N(5),
		blind: r.IntN(2) == 0, warm: r.IntN(2) == 0, greedy: r.IntN(4) > 0, plain: r.IntN(3) == 0,
		maxWait: []time.Duration{-1, 20 * time.Millisecond, time.Second, time.Hour}[r.IntN(4)],
	}
	if mode != ModeStrict {
		pl.credit = min(r.Int64N(5), burst/max(int64(procs)-1, 1))
	}
	weights := []int{evSlow: 0}
	for k := range weights {
		weights[k] = []int{0, 1, 3, 8}[r.IntN(4)]
	}
	for _, k := range []modelKind{evCall, evFreeze, evArrive} {
		weights[k] = 2 + r.IntN(8)
	}
	for _, k := range []modelKind{evLose, evRepeat, evRetry, evPause, evEvict, evExact, evCredit} {
		weights[k] /= 3
	}
	weights[evCrash], weights[evDrop] = 0, 0
	if faults {
		weights[evCrash], weights[evDrop] = r.IntN(2), r.IntN(2)
		pl.outage = r.IntN(4) == 0
	}
	sum := 0
	for _, n := range weights {
		sum += n
	}
	waits := drawWaits(r, pl.limit)
	costly := r.IntN(3) // how many calls cost more than a unit
	for most := 20 + r.IntN(120); len(pl.events) < most; {
		e := modelEvent{p: r.IntN(procs), wait: waits(), n: r.Int64N(4)}
		for x := r.IntN(sum); x >= weights[e.kind]; e.kind++ {
			x -= weights[e.kind]
		}
		switch e.kind {
		case evCall, evSpend:
			e.n = 1
			if r.IntN(3) < costly {
				e.n = 1 + r.Int64N([]int64{3, burst}[r.IntN(2)])
			}
		case evPause:
			e.n = 1 + r.Int64N(1500)
		case evFreeze:
			pl.events = append(pl.events, e)
			if e.kind, e.wait, e.n = evArrive, 0, 3; r.IntN(2) == 0 {
				continue
			}
		case evFlood: // everything that can be had
			e.kind, e.n = evCall, 1
			for range r.Int64N(burst) {
				pl.events = append(pl.events, e)
				e.wait = 0
			}
			e.kind = []modelKind{evLeave, evRound}[r.IntN(2)]
		case evSlow:
			at, p := len(pl.events), e.p
			for _, k := range []modelKind{evCall, evFreeze, evArrive, evCall, evCall, evCall, evArrive} {
				pl.events = append(pl.events, modelEvent{kind: k, p: p, n: 1})
			}
			pl.events[at].wait, pl.events[at+3].wait = e.wait, waits()
			pl.events = append(pl.events, modelEvent{kind: evCall, p: p, n: 1, wait: waits()})
			e = modelEvent{kind: evRound, p: p}
		}
		pl.events = append(pl.events, e)
	}
	return pl
}

// drawWaits draws waits of one scale or another: none, a round trip, a tick, a
// lease, a bucket's time to full.
func drawWaits(r *rand.Rand, l hybridlimit.Limit) func() time.Duration {
	scales := []time.Duration{0, 0, 0, time.Millisecond, 2 * tick, 100 * time.Millisecond, time.Second, min(l.TimeToFull(), 20*time.Second)}
	most := 1 + r.IntN(len(scales))
	still := r.IntN(4)
	return func() time.Duration {
		if r.IntN(4) < still {
			return 0
		}
		if d := scales[r.IntN(most)]; d > 0 {
			return time.Duration(r.Int64N(int64(d)))
		}
		return 0
	}
}
