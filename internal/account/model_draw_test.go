package account

import (
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// drawPlan draws a fleet and a schedule. Each schedule prefers some phrases and some waits to others, because a uniform choice
// rarely reaches an interesting state.
func drawPlan(r *rand.Rand, f family, mode Mode, h hazard) *modelPlan {
	procs := []int{1, 2, 2, 2, 3, 3, 4}[r.IntN(7)]
	burst := 4 + r.Int64N(27)
	if r.IntN(2) == 0 {
		burst = 4 + r.Int64N(5)
	}
	limits := []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, time.Hour, burst),
		hybridlimit.TokenBucket(1+r.Int64N(10), time.Second, burst),
		hybridlimit.TokenBucket(1+r.Int64N(10), 7*time.Second, burst),
		hybridlimit.TokenBucket(10+r.Int64N(90), time.Second, burst),
		hybridlimit.TokenBucket(1+r.Int64N(1000), time.Second, burst),
		hybridlimit.TokenBucket(200+r.Int64N(800), time.Second, burst+20),
	}
	limit := limits[r.IntN(len(limits))]
	if r.IntN(3) == 0 {
		limit.Algorithm = hybridlimit.AlgLeakyBucket
	}
	if f == calendars && h&hazMembers == 0 {
		limit = drawCalendar(r, burst)
	}
	if f == windows || f == calendars && h&hazMembers != 0 { // a day has too many heartbeats
		limit = drawWindow(r, burst, h)
	}
	var wait func() time.Duration
	if h&hazLong != 0 {
		limit, wait = drawLong(r)
	}
	burst = limit.BurstSize()
	pl := &modelPlan{
		limit: limit, procs: procs, mode: mode, every: 1 + r.Int64N(5),
		blind: r.IntN(2) == 0, warm: r.IntN(2) == 0, greedy: r.IntN(4) > 0, plain: r.IntN(3) == 0,
		maxWait: []time.Duration{-1, 20 * time.Millisecond, time.Second, time.Hour}[r.IntN(4)],
	}
	if f == queues { // a queue has no credit, and always needs the arithmetic of slots
		pl.limit.Algorithm, pl.plain = hybridlimit.AlgLeakyQueue, false
	} else if mode != ModeStrict {
		pl.credit = min(r.Int64N(5), burst/max(int64(procs)-1, 1))
	}
	weights := []int{evCross: 0}
	for k := range weights {
		weights[k] = []int{0, 1, 3, 8}[r.IntN(4)]
	}
	weights[evEdge], weights[evCross] = 0, 0
	for _, k := range []modelKind{evCall, evFreeze, evArrive} {
		weights[k] = 2 + r.IntN(8)
	}
	for _, k := range []modelKind{evLose, evRepeat, evRetry, evPause, evEvict, evExact, evCredit} {
		weights[k] /= 3
	}
	h.with(r, weights)
	if f.windowed() {
		weights[evEdge], weights[evCross] = 1+r.IntN(8), r.IntN(4)
	}
	pl.hazard, pl.outage = h, h&hazCrash != 0 && r.IntN(4) == 0
	if h&hazMembers != 0 {
		procs = 3 + r.IntN(4)
		pl.procs, pl.overshoot, pl.paced = procs, []float64{0.3, 0.5, 1}[r.IntN(3)], r.IntN(2) == 0
	}
	sum := 0
	for _, n := range weights {
		sum += n
	}
	if wait == nil {
		wait = drawWaits(r, pl.limit)
	}
	costly := r.IntN(3) // how many calls cost more than one unit
	for most := 20 + r.IntN(120); len(pl.events) < most; {
		e := modelEvent{p: r.IntN(procs), wait: wait(), n: r.Int64N(4)}
		for x := r.IntN(sum); x >= weights[e.kind]; e.kind++ {
			x -= weights[e.kind]
		}
		drawHazard(r, &e)
		switch e.kind {
		case evCall, evSpend:
			e.n = 1
			if r.IntN(3) < costly {
				e.n = 1 + r.Int64N([]int64{3, burst}[r.IntN(2)])
			}
		case evPause:
			e.n = 1 + r.Int64N(1500)
		case evEdge:
			e.n = r.Int64N(int64(len(edges)))
		case evFreeze:
			pl.events = append(pl.events, e)
			if e.kind, e.wait, e.n = evArrive, 0, 3; r.IntN(2) == 0 {
				continue
			}
		case evFlood: // all units
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
			pl.events[at].wait, pl.events[at+3].wait = e.wait, wait()
			pl.events = append(pl.events, modelEvent{kind: evCall, p: p, n: 1, wait: wait()})
			e = modelEvent{kind: evRound, p: p}
		case evRefused:
			pl.events = append(pl.events, drawRefused(r, e.p, procs, burst, wait)...)
			continue
		case evCross:
			if r.IntN(2) == 0 {
				pl.events = append(pl.events, drawAhead(r, e.p, procs, burst, h)...)
			} else {
				pl.events = append(pl.events, drawCrossing(r, e.p, burst)...)
			}
			continue
		}
		pl.events = append(pl.events, e)
	}
	if h&hazLimit != 0 && !f.windowed() {
		pl.limits(r)
	}
	if h&hazLong != 0 {
		pl.lives(r)
	}
	pl.bare = r.IntN(3) > 0
	if h&hazClass != 0 {
		pl.drawClasses(r)
	}
	return pl
}

// drawRefused draws a sync that p gives up, whether or not Redis has run it. Then it draws what another process takes, the next
// sync of p, and later calls of both.
func drawRefused(r *rand.Rand, p, procs int, burst int64, waits func() time.Duration) (es []modelEvent) {
	q := (p + r.IntN(procs)) % procs
	calls := func(p int, most int64, cost int64) {
		for range r.Int64N(most + 1) {
			es = append(es, modelEvent{kind: evCall, p: p, n: cost})
		}
	}
	some := 1 + r.Int64N(burst)
	calls(p, 2, 1)
	es = append(es, does(p, evRound)...)
	calls(p, burst/2, 1)
	es = append(es, modelEvent{kind: evCall, p: p, n: some, wait: waits()}, modelEvent{kind: evFreeze, p: p})
	if r.IntN(4) > 0 {
		es = append(es, does(p, evArrive)...)
	}
	es = append(es, does(p, evDrop, evLeave)...)
	if calls(p, 2, some); r.IntN(2) == 0 { // and q takes all units
		calls(q, 2, burst)
		return append(es, does(q, evRound)...)
	}
	calls(q, 2, 1)
	es = append(es, does(q, evRound)...)
	calls(p, 1, burst)
	es = append(es, modelEvent{kind: evRound, p: p}, modelEvent{kind: evCall, p: p, n: some, wait: waits()})
	calls(p, burst/2, 1)
	es = append(es, does(p, evRound)...)
	calls(q, burst/2, 1)
	return es
}

// drawWaits draws waits up to one of several scales: zero, a round trip, a tick, a lease, or a bucket's time to full.
func drawWaits(r *rand.Rand, l hybridlimit.Limit) func() time.Duration {
	scales := []time.Duration{0, 0, 0, time.Millisecond, 2 * tick, 100 * time.Millisecond, time.Second, min(l.TimeToFull(), 20*time.Second)}
	most := 1 + r.IntN(len(scales))
	still := r.IntN(4)
	return func() time.Duration {
		if r.IntN(4) < still {
			return 0
		}
		if d := scales[r.IntN(most)]; d > 0 {
			return inMicroseconds(l, time.Duration(r.Int64N(int64(d))))
		}
		return 0
	}
}
