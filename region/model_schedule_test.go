package region

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

type modelKind uint8

const (
	evCall     modelKind = iota // p decides calls for n units
	evFlood                     // p decides calls of one unit, as many as n says
	evSync                      // p sends a sync
	evArrive                    // the n-th message between p and its Redis arrives
	evRepeat                    // it arrives, and will arrive again
	evLose                      // it is lost
	evRetry                     // p sends its sync again
	evRound                     // a whole sync at this instant
	evLeave                     // the waiting calls of p leave
	evMove                      // the mover of p runs
	evFar                       // the n-th message between regions arrives
	evFarLose                   // it is lost
	evTransfer                  // the mover of p runs, and regions answer at this instant
	evEvict                     // p forgets the key, if it may
	evPause                     // p does not run for n ms
	evMute                      // p is cut off from its Redis, or comes back
	evCrash                     // p restarts
	evDrop                      // Redis refuses p's sync for good
	evCut                       // the region of p and the n-th are cut off from each other, or come back
	evWipe                      // the Redis of p's region loses its data

	modelKinds
)

var kindNames = [modelKinds]string{
	"evCall", "evFlood", "evSync", "evArrive", "evRepeat", "evLose", "evRetry", "evRound", "evLeave", "evMove", "evFar", "evFarLose", "evTransfer",
	"evEvict", "evPause", "evMute", "evCrash", "evDrop", "evCut", "evWipe",
}

type modelEvent struct {
	kind modelKind
	r, p int
	n    int64
	wait time.Duration
}

// String returns the event as a Go literal.
func (e modelEvent) String() string {
	return fmt.Sprintf("{%s, %d, %d, %d, %d},", kindNames[e.kind], e.r, e.p, e.n, e.wait)
}

// hazard is a set of faults.
type hazard uint8

const (
	hazNet   hazard = 1 << iota // lost messages, partitions of regions
	hazCrash                    // crashes, refused syncs, pauses
	hazApart                    // processes are cut off from their Redis
	hazWipe
)

// plan is regions and a schedule. A run depends on nothing else.
type plan struct {
	limit   hybridlimit.Limit
	shares  []int64 // in hundredths
	escrow  float64
	procs   []int
	mode    account.Mode
	part    float64 // Overshoot
	greedy  bool
	free    bool
	warm    bool
	maxWait time.Duration
	skew    []int64
	hazard  hazard
	events  []modelEvent
}

func (pl *plan) String() string {
	head := *pl
	head.events = nil
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", head)
	for _, e := range pl.events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// world makes the regions. ok is false if the limit cannot be divided so.
func (pl *plan) world(m mutant) (w *world, ok bool) {
	shares := map[string]share{}
	for i, s := range pl.shares {
		shares[fmt.Sprint(i)] = share{s, 100}
	}
	parts, bad := divide(pl.limit, shares, pl.escrow)
	if len(bad) > 0 {
		return nil, false
	}
	w = &world{total: algo.BucketOf(pl.limit), mutant: m, greedy: pl.greedy, free: pl.free}
	if pl.warm {
		w.now = 3 * int64(pl.limit.TimeToFull())
	}
	pl.spoil(m, parts)
	all := make([]donorTerms, len(pl.shares))
	for i := range pl.shares {
		l := parts[fmt.Sprint(i)].limit
		all[i] = donorTerms{floor: l.Burst / 4, spare: l.Burst - l.Burst/4, perNs: float64(l.Rate) / float64(l.Period)}
	}
	for i := range pl.shares {
		p := parts[fmt.Sprint(i)]
		r := account.NewPlan(p.limit)
		c := account.Conditions{
			Mode: pl.mode, Every: 1000, MaxWait: int64(pl.maxWait), MaxLife: int64(longestFree / time.Second),
			Credit: r.Credit(pl.mode, pl.part, 1000, int64(pl.procs[i])),
		}
		donors := slices.Delete(slices.Clone(all), i, i+1)
		w.newModelRegion(p.limit, &terms{burst: p.limit.Burst, under: p.under, donors: donors}, c, pl.procs[i])
	}
	for i, r := range w.regions {
		r.cut, r.skew = make([]bool, len(w.regions)), pl.skew[i]
	}
	w.started = true
	return w, true
}

// spoil undoes the division for a mutant.
func (pl *plan) spoil(m mutant, parts map[string]part) {
	for i, s := range pl.shares {
		name := fmt.Sprint(i)
		p := parts[name]
		switch burst := pl.limit.BurstSize(); m {
		case mutNoEscrow:
			p.limit.Burst += int64(len(pl.shares)) * p.under * s / 100
		case mutNoReserve:
			p.limit.Burst = (burst - int64(len(pl.shares))*p.under) * s / 100
		}
		parts[name] = p
	}
}

// run plays a plan and checks the promise after each event. It returns nil if the limit cannot be divided so.
func (pl *plan) run(m mutant, trace *strings.Builder) *world {
	w, ok := pl.world(m)
	if !ok {
		return nil
	}
	w.trace = trace
	return w.run(pl)
}

func (w *world) run(pl *plan) *world {
	w.beats()
	for _, e := range pl.events {
		if w.play(e); w.bad == "" {
			w.check()
		}
	}
	return w
}

// play runs one event.
func (w *world) play(e modelEvent) {
	w.now += int64(e.wait)
	w.beats()
	r := w.regions[e.r%len(w.regions)]
	p := r.procs[e.p%len(r.procs)]
	switch e.kind {
	case evFar, evFarLose:
		if n := len(w.far); n > 0 {
			w.deliver(int(e.n)%n, e.kind == evFarLose)
		}
		return
	case evCut:
		if to := int(e.n) % len(w.regions); to != r.place {
			r.cut[to] = !r.cut[to]
			w.regions[to].cut[r.place] = r.cut[to]
			w.logf("r%d and r%d cut off: %v", r.place, to, r.cut[to])
		}
		return
	case evWipe:
		w.wipe(r)
		return
	case evArrive, evRepeat, evLose:
		w.arrive(p, e)
		return
	case evCrash:
		w.crash(r, e.p%len(r.procs))
		return
	case evMute:
		p.mute = !p.mute
		w.logf("r%d p%d cut off: %v", r.place, p.id, p.mute)
		return
	}
	if w.now < p.asleep {
		return
	}
	w.leave(p, false)
	switch e.kind {
	case evCall:
		w.call(p, e.n)
	case evFlood:
		for range e.n {
			w.call(p, 1)
		}
	case evSync:
		w.freeze(p)
	case evRetry:
		if p.frozen != nil {
			w.send(p)
		}
	case evRound:
		w.round(p)
	case evLeave:
		w.leave(p, true)
	case evMove:
		w.move(p)
	case evTransfer:
		w.move(p)
		for range 2 {
			for i := len(w.far) - 1; i >= 0; i-- {
				if w.far[i].p == p {
					w.deliver(i, false)
				}
			}
		}
		if e.n%2 == 0 {
			w.round(p)
			w.move(p)
		}
	case evEvict:
		w.begin(p)
		if p.waiters.Len() == 0 && p.frozen == nil && p.s.Forgettable(false) {
			p.s, p.evicted = account.Account{}, w.now
		} else {
			p.s.Return()
		}
		w.end(p)
	case evPause:
		p.asleep, p.loaded, p.until = w.now+e.n*int64(time.Millisecond), 0, 0
	case evDrop:
		if p.frozen != nil {
			w.begin(p)
			w.allowed += float64(min(max(0, p.frozen.op.Owed), r.terms.Credit))
			p.s.GiveUp(&p.waiters)
			p.frozen = nil
			w.end(p)
		}
	}
}

// arrive moves a message of p forward.
func (w *world) arrive(p *proc, e modelEvent) {
	w.near = slices.DeleteFunc(w.near, func(m nearMessage) bool { return w.now-m.sent > modelLinger })
	var own []int
	for i := range w.near {
		if w.near[i].p == p && w.near[i].id == p.id {
			own = append(own, i)
		}
	}
	if len(own) == 0 {
		return
	}
	i := own[e.n%int64(len(own))]
	m := w.near[i]
	if m.reply != nil && e.kind != evLose && w.now < p.asleep {
		return
	}
	if e.kind != evRepeat {
		w.near = append(w.near[:i:i], w.near[i+1:]...)
	}
	switch {
	case e.kind == evLose, p.mute:
	case m.reply == nil:
		if rep, ok := p.r.apply(p.id, m.f, w.now); ok {
			w.near = append(w.near, nearMessage{p: p, id: p.id, f: m.f, sent: w.now, reply: &rep})
		}
	case p.frozen == m.f:
		w.settle(p, *m.reply)
	}
}

// draw draws regions and a schedule. Each schedule prefers some events and some waits to others.
func draw(seed uint64, h hazard) *plan {
	r := rand.New(rand.NewPCG(seed, uint64(h)))
	n := 2 + r.IntN(2)
	burst := 12 + r.Int64N(50)
	limits := []hybridlimit.Limit{
		hybridlimit.TokenBucket(1, time.Hour, burst),
		hybridlimit.TokenBucket(1+r.Int64N(10), time.Second, burst),
		hybridlimit.TokenBucket(10+r.Int64N(90), time.Second, burst),
		hybridlimit.TokenBucket(burst, time.Second, burst),
		hybridlimit.TokenBucket(200+r.Int64N(800), time.Second, burst+100),
	}
	if r.IntN(2) == 0 {
		limits = []hybridlimit.Limit{hybridlimit.TokenBucket(burst, time.Duration(200+r.IntN(2000))*time.Millisecond, burst)}
	}
	pl := &plan{
		limit: limits[r.IntN(len(limits))], escrow: []float64{0.1, 0.25, 0.5}[r.IntN(3)],
		mode: []account.Mode{account.ModeAuto, account.ModeStrict, account.ModeStrict, account.ModeDeferred}[r.IntN(4)],
		part: []float64{0, 0.05, 0.2}[r.IntN(3)], greedy: r.IntN(2) == 0, free: r.IntN(4) == 0, warm: r.IntN(2) == 0,
		maxWait: []time.Duration{-1, 20 * time.Millisecond, time.Second}[r.IntN(3)], hazard: h,
	}
	left := int64(100)
	for i := range n {
		s := left / int64(n-i)
		if i < n-1 && r.IntN(3) == 0 {
			s = 10 + r.Int64N(left-10*int64(n-i)-9)
		}
		left -= s
		pl.shares, pl.procs = append(pl.shares, s), append(pl.procs, 1+r.IntN(3))
		pl.skew = append(pl.skew, []int64{0, 0, -3_000_000, 7_123_457}[r.IntN(4)])
	}
	weights := [modelKinds]int{}
	for k := range weights {
		weights[k] = []int{0, 1, 3, 8}[r.IntN(4)]
	}
	for _, k := range []modelKind{evCall, evFlood, evRound, evTransfer} {
		weights[k] = 2 + r.IntN(8)
	}
	for _, k := range []modelKind{evLose, evFarLose, evRepeat, evRetry, evEvict, evPause, evMute, evCrash, evDrop, evCut, evWipe} {
		weights[k] /= 3
	}
	off := func(on hazard, kinds ...modelKind) {
		for _, k := range kinds {
			if h&on == 0 {
				weights[k] = 0
			}
		}
	}
	off(hazNet, evLose, evFarLose, evRepeat, evRetry, evCut)
	off(hazCrash, evPause, evCrash, evDrop)
	off(hazApart, evMute)
	off(hazWipe, evWipe)
	sum := 0
	for _, n := range weights {
		sum += n
	}
	hot := r.IntN(n)
	steady := r.IntN(4) // how often events stay in the hot region
	scales := []time.Duration{0, 0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, min(pl.limit.TimeToFull(), 20*time.Second)}
	most, still := 2+r.IntN(len(scales)-1), r.IntN(4)
	for range 20 + r.IntN(100) {
		if r.IntN(25) == 0 {
			pl.events = append(pl.events, drawFull(r, pl)...)
		}
		e := modelEvent{r: r.IntN(n), p: r.IntN(3), n: r.Int64N(6)}
		if r.IntN(4) < steady {
			e.r = hot
		}
		if r.IntN(20) == 0 {
			hot = r.IntN(n)
		}
		if d := scales[r.IntN(most)]; d > 0 && r.IntN(4) >= still {
			e.wait = time.Duration(r.Int64N(int64(d/time.Microsecond))) * time.Microsecond
		}
		for x := r.IntN(sum); x >= weights[e.kind]; e.kind++ {
			x -= weights[e.kind]
		}
		switch e.kind {
		case evCall:
			e.n = 1 + r.Int64N([]int64{1, 3, 20}[r.IntN(3)])
		case evFlood:
			e.n = 1 + r.Int64N(burst)
		case evPause:
			e.n = 1 + r.Int64N(1500)
		}
		pl.events = append(pl.events, e)
	}
	return pl
}

// drawFull draws what is needed to have as many units as possible at one moment: regions that are full, a process that
// leases nearly all that its region has and waits, and units that come from other regions meanwhile.
func drawFull(r *rand.Rand, pl *plan) (es []modelEvent) {
	n := len(pl.shares)
	at := r.IntN(n)
	add := func(kind modelKind, place, p int, n int64, wait time.Duration) {
		es = append(es, modelEvent{kind, place, p, n, wait})
	}
	soon := func(most time.Duration) time.Duration {
		return time.Duration(r.Int64N(int64(most/time.Microsecond))) * time.Microsecond
	}
	part := max(1, pl.limit.BurstSize()/int64(2*n))
	holder, mover, other := r.IntN(3), r.IntN(3), r.IntN(3)
	add(evCall, at, mover, 1, min(pl.limit.TimeToFull(), 20*time.Second))
	add(evRound, at, mover, 0, 0)
	add(evCall, at, mover, 1+r.Int64N(part), 0)
	add(evRound, at, mover, 0, 0)
	add(evCall, at, mover, part, 0) // it may be refused: polls begin
	add(evRound, at, mover, 0, 0)
	add(evCall, at, holder, 1, 0)
	add(evRound, at, holder, 0, 0)
	gap := []time.Duration{2 * time.Millisecond, 40 * time.Millisecond, 120 * time.Millisecond}[r.IntN(3)]
	spares, hoards := r.IntN(4) > 0, r.IntN(2) == 0
	for range 1 + r.IntN(12) {
		who := mover
		if r.IntN(2) == 0 {
			who = other
		}
		cost := 1 + r.Int64N(part)
		if spares {
			cost = 4 * part // it is refused, and takes nothing
		}
		if hoards && r.IntN(2) == 0 {
			p := r.IntN(3)
			add(evCall, at, p, 1, soon(gap))
			add(evRound, at, p, 0, 0)
		}
		add(evCall, at, who, cost, soon(gap))
		if add(evRound, at, who, 0, 0); r.IntN(2) == 0 {
			add(evTransfer, at, who, r.Int64N(4), 0)
			continue
		}
		add(evMove, at, who, 0, 0)
		add(evCall, at, mover, cost, soon(gap))
		if r.IntN(2) == 0 {
			add(evMove, at, mover, 0, 0)
		}
		for range 3 + r.IntN(4) {
			add(evFar, 0, 0, 0, soon(gap))
		}
		if r.IntN(3) > 0 {
			add(evRound, at, who, 0, soon(gap))
			add(evRound, at, mover, 0, 0)
		}
		if place := r.IntN(n); place != at && r.IntN(3) == 0 {
			add(evCall, place, 0, 2*part, 0)
			add(evRound, place, 0, 0, 0)
			add(evTransfer, place, 0, r.Int64N(2), 0)
		}
	}
	return es
}
