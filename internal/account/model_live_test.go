package account

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// live runs a world by the clock over a network that loses nothing. Calls are Poisson. A sync is sent at once or after T, as
// the account wants it. A caller leaves after MaxWait.
type live struct {
	w      *world
	agenda agenda
	rtt    int64 // ns
	lazy   int64 // T, ns
	due    []int64
	ops    int
	seq    int64
}

// later is an action at a given time. seq keeps the order of actions at the same time.
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

// Push implements heap.Interface.
func (a *agenda) Push(x any) { *a = append(*a, x.(later)) }

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func (l *live) in(d int64, do func()) {
	l.seq++
	heap.Push(&l.agenda, later{l.w.now + d, l.seq, do})
}

// run performs the actions of the agenda up to a time.
func (l *live) run(until int64) {
	for len(l.agenda) > 0 && l.agenda[0].at <= until {
		next := heap.Pop(&l.agenda).(later)
		l.w.now = next.at
		next.do()
	}
	l.w.now = until
}

// poke does for process i what the sync engine does when the process is queued.
func (l *live) poke(i int) {
	p := l.w.procs[i]
	switch p.wants {
	case SyncNow:
		l.due[i] = min(l.due[i], l.w.now)
	case SyncLazily:
		l.due[i] = min(l.due[i], l.w.now+l.lazy)
	}
	p.wants = SyncNot
	if p.frozen != nil || l.due[i] == never64 {
		return
	}
	if wait := l.due[i] - l.w.now; wait > 0 {
		l.in(wait, func() { l.poke(i) })
		return
	}
	l.due[i] = never64
	if !l.w.freeze(p) {
		l.look(i)
		return
	}
	l.ops++
	l.w.net = nil
	f := p.frozen
	l.in(l.rtt/2, func() {
		r, _ := l.w.redis.apply(f.batch, f.op, l.w.now)
		l.in(l.rtt/2, func() {
			l.w.settle(p, r)
			l.look(i)
			l.poke(i)
		})
	})
}

const never64 = 1<<63 - 1

// look queues process i for the time at which it may have to return leased units.
func (l *live) look(i int) {
	p := l.w.procs[i]
	at := p.s.LookAt(l.w.terms(p), l.w.now)
	if at > 0 && at < l.due[i] {
		l.due[i] = at
		l.in(at-l.w.now, func() { l.poke(i) })
	}
}

// call makes one decision of process i.
func (l *live) call(i int, n int64) {
	p := l.w.procs[i]
	if l.w.spend(p, n) {
		return
	}
	before := p.waiters.Len()
	l.w.call(p, n)
	if p.waiters.Len() > before {
		l.in(l.w.t.MaxWait, func() {
			for l.w.overdue(p) {
				l.w.leave(p, true)
			}
		})
	}
	l.poke(i)
}

// livePlan is a load on a fleet.
type livePlan struct {
	procs   int
	limit   hybridlimit.Limit
	mode    Mode
	load    float64       // calls per unit of the rate
	step    time.Duration // until then the load is 0.5
	on, off time.Duration
	zipf    float64 // the i-th process gets 1/i^zipf of the calls; 0: even
	steady  time.Duration
	left    ablation
	maxLife int64 // Conditions.MaxLife
	big     int64 // cost of every tenth call; 0: all calls cost 1
}

// liveOutcome is the result of a run, without the first part (steady).
type liveOutcome struct {
	utilisation float64 // admitted units, as a part of those that one central bucket admits
	excess      float64 // units, over the whole run
	ops         float64 // per admitted unit
	perCall     float64 // ops per call
	waited      float64 // as a part of the calls
	jain        float64
	spread      float64 // largest difference between the admitted parts of the processes
	calls       int
}

// tally is the set of counters so far.
type tally struct {
	calls, ops    int
	waited        int64
	free          int64
	asked, admits []int64 // by process
}

func (l *live) now(t *tally) tally {
	c := *t
	c.ops, c.waited = l.ops, l.w.waited
	c.asked, c.admits = slices.Clone(t.asked), nil
	for _, p := range l.w.procs {
		c.admits = append(c.admits, p.admitted)
	}
	return c
}

// loadAt returns the load after a time (ns).
func (pl livePlan) loadAt(passed int64) float64 {
	if passed < int64(pl.step) {
		return 0.5
	}
	return pl.load
}

func (pl livePlan) run(seed uint64, span time.Duration) (liveOutcome, *world) {
	r := NewPlan(pl.limit)
	t := Conditions{
		Bucket: r.Bucket, Limit: pl.limit, Mode: pl.mode, N: int64(pl.procs), Every: defaultSyncEvery, Blind: true,
		RTT: int64(500 * time.Microsecond), Tick: int64(tick), MaxWait: int64(defaultMaxWait), RelookIn: MaxView,
		MaxLife: pl.maxLife, Fallback: Fallback{Size: fallback.Size{Kind: fallback.KindDenyAll}},
	}
	t.Credit = r.Credit(pl.mode, defaultOvershoot, defaultSyncEvery, t.N)
	w := newWorld(t, pl.procs)
	w.redis.off = pl.left
	l := &live{w: w, rtt: t.RTT, lazy: int64(defaultInterval), due: make([]int64, pl.procs)}
	for i := range l.due {
		l.due[i] = never64
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	w.now = 3 * r.Full
	start := w.now
	var parts []float64 // of the load, cumulative
	sum := 0.0
	for i := range pl.procs {
		sum += math.Pow(float64(i+1), -pl.zipf)
		parts = append(parts, sum)
	}
	central := algo.State{}
	count := tally{asked: make([]int64, pl.procs)}
	before := l.now(&count)
	unit := float64(pl.limit.Period) / float64(pl.limit.Rate)
	cycle, warm := int64(pl.on+pl.off), true
	for at := float64(start); at < float64(start)+float64(span); at += rnd.ExpFloat64() * unit / pl.loadAt(int64(at)-start) {
		if cycle > 0 && (int64(at)-start)%cycle >= int64(pl.on) { // continue when the load is on again
			at += float64(cycle - (int64(at)-start)%cycle)
			continue
		}
		l.run(int64(at))
		if warm && w.now-start >= int64(pl.steady) {
			before, warm = l.now(&count), false
		}
		n := int64(1)
		if pl.big > 0 && rnd.IntN(10) == 0 {
			n = pl.big
		}
		next, ans, _ := r.Bucket.Apply(central, algo.Op{Asks: []int64{n}}, modelEpoch+w.now/1000)
		central, count.free = next, count.free+ans.Granted
		count.calls++
		i := sort.SearchFloat64s(parts, rnd.Float64()*sum)
		count.asked[i]++
		l.call(i, n)
	}
	l.run(start + int64(span) + int64(time.Second))
	return l.outcome(before, l.now(&count)), w
}

func (l *live) outcome(before, after tally) liveOutcome {
	b := l.w.t.Bucket
	o := liveOutcome{calls: after.calls, excess: excessUnits(b, l.w.spending.excess(b))}
	var admitted, sq float64
	groups := min(4, len(after.admits)) // groups by demand, because single processes are too noisy
	got, asked := make([]float64, groups), make([]float64, groups)
	for i := range after.admits {
		n := float64(after.admits[i] - before.admits[i])
		admitted, sq = admitted+n, sq+n*n
		g := i * groups / len(after.admits)
		got[g] += n
		asked[g] += float64(after.asked[i] - before.asked[i])
	}
	low, high := 1.0, 0.0
	for g := range groups {
		low, high = min(low, got[g]/asked[g]), max(high, got[g]/asked[g])
	}
	calls := float64(after.calls - before.calls)
	o.utilisation = admitted / float64(after.free-before.free)
	o.ops = float64(after.ops-before.ops) / max(admitted, 1)
	o.perCall = float64(after.ops-before.ops) / calls
	o.waited = float64(after.waited-before.waited) / calls
	o.jain = admitted * admitted / sq / float64(len(after.admits))
	o.spread = high - low
	return o
}

// TestModelUtilisation verifies that over a network that loses nothing the fleet admits nearly as much as one bucket, and that
// no call waits forever.
func TestModelUtilisation(t *testing.T) {
	seed := testenv.Seed(t)
	span := time.Duration(testenv.Runs(5, 60)) * time.Second
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
				pl := livePlan{procs: f.procs, limit: f.limit, mode: mode, load: load}
				o, w := pl.run(seed, span)
				t.Logf("%3d × %v, %v, load %g: %d calls, utilisation %.3f, excess %.2f of %d, %.3f ops per unit; %d expired, %d lost", f.procs, f.limit, mode, load,
					o.calls, o.utilisation, o.excess, int64(f.procs-1)*w.t.Credit, o.ops, w.expired, w.lost)
				if o.utilisation < 0.9 {
					t.Errorf("utilisation %.3f", o.utilisation)
				}
				for _, p := range w.procs {
					if p.waiters.Len() > 0 {
						t.Errorf("p%d has %d calls waiting a second after the last", p.id, p.waiters.Len())
					}
					if f := p.frozen; f != nil && w.now-f.sent > w.t.RTT { // a younger one gives leased units back
						t.Errorf("p%d waits for an answer since %v, a second after the last call", p.id, time.Duration(w.now-f.sent))
					}
				}
			}
		}
	}
}
