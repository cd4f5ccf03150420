package hybrid

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// live runs a world by the clock over a network that loses nothing: Poisson
// calls, a sync at once or after T as the step wants it, callers that leave
// after MaxWait.
type live struct {
	w      *world
	agenda agenda
	rtt    int64 // ns
	lazy   int64 // T, ns
	due    []int64
	ops    int
	seq    int64
}

// later is something to do at a time; seq keeps ties in order.
type later struct {
	at, seq int64
	do      func()
}

type agenda []later

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push is for package heap.
func (a *agenda) Push(x any) { *a = append(*a, x.(later)) }

// Pop is for package heap.
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func (l *live) in(d int64, do func()) {
	l.seq++
	heap.Push(&l.agenda, later{l.w.now + d, l.seq, do})
}

// run does what is on the agenda until a time.
func (l *live) run(until int64) {
	for len(l.agenda) > 0 && l.agenda[0].at <= until {
		next := heap.Pop(&l.agenda).(later)
		l.w.now = next.at
		next.do()
	}
	l.w.now = until
}

// poke does for process i what the sync engine does when it is queued.
func (l *live) poke(i int) {
	p := l.w.procs[i]
	switch p.wants {
	case syncNow:
		l.due[i] = min(l.due[i], l.w.now)
	case syncLazily:
		l.due[i] = min(l.due[i], l.w.now+l.lazy)
	}
	p.wants = syncNot
	if p.frozen != nil || l.due[i] == never64 {
		return
	}
	if wait := l.due[i] - l.w.now; wait > 0 {
		l.in(wait, func() { l.poke(i) })
		return
	}
	l.due[i] = never64
	if !l.w.freeze(p) {
		return
	}
	l.ops++
	l.w.net = nil
	f := p.frozen
	l.in(l.rtt/2, func() {
		r, _ := l.w.redis.apply(f.batch, f.op, l.w.now)
		l.in(l.rtt/2, func() {
			l.w.settle(p, r)
			l.poke(i)
		})
	})
}

const never64 = 1<<63 - 1

// call is one decision of process i.
func (l *live) call(i int) {
	p := l.w.procs[i]
	if l.w.spend(p, 1) {
		return
	}
	before := len(p.waiters)
	l.w.call(p, 1)
	if len(p.waiters) > before {
		l.in(l.w.t.maxWait, func() {
			for l.w.overdue(p) {
				l.w.leave(p, true)
			}
		})
	}
	l.poke(i)
}

type livePlan struct {
	procs int
	limit hybridlimit.Limit
	mode  Mode
	load  float64 // calls per unit of the rate
}

type liveOutcome struct {
	utilisation float64 // admitted, of what one central bucket admits of the same calls
	excess      float64 // units
	ops         float64 // per admitted unit
	calls       int
}

func (pl livePlan) run(seed uint64, span time.Duration) (liveOutcome, *world) {
	r := newRules(pl.limit)
	lim := &Limiter{cfg: Config{Mode: pl.mode, Overshoot: defaultOvershoot}}
	t := terms{
		bucket: r.bucket, limit: pl.limit, mode: pl.mode, n: int64(pl.procs), every: defaultSyncEvery, blind: true,
		rtt: int64(500 * time.Microsecond), tick: int64(tick), maxWait: int64(defaultMaxWait), relookIn: maxLookAgain,
		share: shareTerms{policy: FallbackDenyAll},
	}
	t.credit = lim.credit(r, t.n)
	w := newWorld(t, pl.procs)
	l := &live{w: w, rtt: t.rtt, lazy: int64(defaultInterval), due: make([]int64, pl.procs)}
	for i := range l.due {
		l.due[i] = never64
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	w.now = 3 * r.full
	start := w.now
	central, free, calls := algo.State{}, int64(0), 0
	mean := float64(pl.limit.Period) / float64(pl.limit.Rate) / pl.load
	for at := float64(start); at < float64(start)+float64(span); at += rnd.ExpFloat64() * mean {
		l.run(int64(at))
		next, ans, _ := r.bucket.Apply(central, algo.Op{Asks: []int64{1}}, modelEpoch+w.now/1000)
		central, free = next, free+ans.Granted
		calls++
		l.call(rnd.IntN(pl.procs))
	}
	l.run(start + int64(span) + int64(time.Second))
	o := liveOutcome{
		utilisation: float64(w.spending.total) / float64(free), calls: calls,
		excess: excessUnits(r.bucket, w.spending.excess(r.bucket)), ops: float64(l.ops) / float64(max(w.spending.total, 1)),
	}
	return o, w
}

// Over a network that loses nothing the fleet admits nearly what one bucket
// would have, and nobody waits for ever.
func TestModelUtilisation(t *testing.T) {
	seed := modelSeed(t)
	span := time.Duration(modelRuns(5, 60)) * time.Second
	for _, f := range []struct {
		procs int
		limit hybridlimit.Limit
	}{
		{4, hybridlimit.TokenBucket(100, time.Second, 20)},
		{10, hybridlimit.TokenBucket(1000, time.Second, 1000)},
		{20, hybridlimit.TokenBucket(1000, time.Second, 100)},
		{20, hybridlimit.TokenBucket(100, time.Second, 20)},
		{100, hybridlimit.TokenBucket(1000, time.Second, 1000)},
	} {
		for _, mode := range []Mode{ModeAuto, ModeStrict, ModeDeferred} {
			for _, load := range []float64{0.5, 1.5, 10} {
				pl := livePlan{f.procs, f.limit, mode, load}
				o, w := pl.run(seed, span)
				t.Logf("%3d × %v, %v, load %g: %d calls, utilisation %.3f, excess %.2f of %d, %.3f ops per unit; %d expired, %d lost", f.procs, f.limit, mode, load,
					o.calls, o.utilisation, o.excess, int64(f.procs-1)*w.t.credit, o.ops, w.expired, w.lost)
				if o.utilisation < 0.9 {
					t.Errorf("utilisation %.3f", o.utilisation)
				}
				for _, p := range w.procs {
					if len(p.waiters) > 0 || p.frozen != nil {
						t.Errorf("p%d has %d calls waiting a second after the last", p.id, len(p.waiters))
					}
				}
			}
		}
	}
}
