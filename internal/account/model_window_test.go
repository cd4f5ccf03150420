package account

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is what the model has of windows' own: what they promise, counted
// at spending time by Redis's clock, and the rules that can be off.

// family is which algorithms are drawn.
type family uint8

const (
	buckets family = iota // token and leaky buckets, which are the same arithmetic
	windows               // fixed and sliding
)

func (f family) String() string { return [...]string{"buckets", "windows"}[f] }

// drawWindow draws a limit. Hours are too many heartbeats.
func drawWindow(r *rand.Rand, rate int64, h hazard) hybridlimit.Limit {
	periods := []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, time.Second, time.Second, 7 * time.Second, time.Hour}
	period := periods[r.IntN(len(periods))]
	if h&hazMembers != 0 {
		period = min(period, 7*time.Second)
	}
	if r.IntN(2) == 0 {
		return hybridlimit.FixedWindow(rate, period)
	}
	return hybridlimit.SlidingWindow(rate, period)
}

// inMicroseconds is a wait. Redis tells in whole µs how long a window lasts: of
// a request that took no time at all, as it may here, that is up to a µs too
// long.
func inMicroseconds(l hybridlimit.Limit, d time.Duration) time.Duration {
	if algo.LimitOf(l).Window.Period > 0 {
		return d.Truncate(time.Microsecond)
	}
	return d
}

// edges are times near the end of a window, as evEdge counts them.
var edges = [...]time.Duration{
	-time.Microsecond, 0, time.Microsecond, -time.Millisecond, time.Millisecond, -tick - time.Millisecond,
	-2*tick - time.Millisecond, tick, -40 * time.Millisecond,
}

// drawCrossing draws a sync that the end of its window overtakes, before or
// after it gets to Redis, with calls on all sides.
func drawCrossing(r *rand.Rand, p int, rate int64) (es []modelEvent) {
	edge := func() {
		es = append(es, modelEvent{kind: evEdge, p: p, n: r.Int64N(int64(len(edges)))})
	}
	some := func() {
		for range r.IntN(4) {
			es = append(es, modelEvent{kind: evCall, p: p, n: 1 + r.Int64N(1+r.Int64N(rate))})
		}
	}
	some()
	edge()
	some()
	es = append(es, modelEvent{kind: evFreeze, p: p})
	some()
	if r.IntN(2) == 0 {
		edge()
	}
	es = append(es, modelEvent{kind: evArrive, p: p})
	some()
	if r.IntN(2) == 0 {
		edge()
	}
	es = append(es, modelEvent{kind: evArrive, p: p})
	some()
	return es
}

// toEdge passes time until near the end of a window of Redis's clock.
func (w *world) toEdge(n int64) {
	period := w.t.Window.Period
	if period == 0 {
		return
	}
	d := (period-w.redis.clock(w.now)%period)*1000 + int64(edges[n%int64(len(edges))])
	if d < 0 {
		d += period * 1000
	}
	w.advance(max(d, 0))
}

// skew is by how much Redis's clock was ahead until a time, and the window that
// Redis counts in from then on.
type skew struct{ until, was, win int64 } // ns, µs

// clockAt is what Redis's clock showed, at a time that may be over.
func (r *modelRedis) clockAt(ns int64) int64 {
	for _, s := range r.skews {
		if ns < s.until {
			return modelEpoch + ns/1000 + s.was
		}
	}
	return r.clock(ns)
}

// windowBook counts what was spent in windows, whatever Redis knows of it and
// without a bound to what it counts.
type windowBook struct {
	window         algo.Window
	win, cur, prev int64
	own            int64 // of cur, what is not carried
}

// to brings the book to a time of Redis. A time before its window leaves it
// there, as a clock that stepped back freezes Redis.
func (b *windowBook) to(at int64) {
	w := b.window
	win := w.Number(at)
	for b.win < win && b.cur+b.prev > 0 {
		carry := int64(0)
		if !w.Sliding {
			carry = max(0, b.cur-w.Rate)
		}
		b.prev, b.cur, b.own = b.cur, carry, 0
		b.win++
	}
	b.win = max(b.win, win)
}

// step takes the book over a step of the clock: to the time before it, for what
// was over stays over, and then to the window in which Redis counts from there.
// Windows pass from that moment on, whether or not anything is spent in them.
func (b *windowBook) step(s skew) {
	b.to(modelEpoch + s.until/1000 + s.was)
	b.to(s.win * b.window.Period)
	b.win = s.win
}

// used is the sub-units that count at a time.
func (b *windowBook) used(at int64) int64 {
	w := b.window
	if !w.Sliding {
		return b.cur
	}
	left := w.Unit - max(at-b.win*w.Period, 0)/w.Tick
	return b.cur*w.Unit + b.prev*left
}

// worst is by how many units a window, or at any moment the estimate, was above
// Rate; and, of a fixed window, by how many any windows in a row were above Rate
// for each of them.
func (w *world) worst() (excess, debt float64) {
	m, win := &w.spending, w.t.Window
	slices.SortStableFunc(m.spent, func(x, y spent) int { return cmp.Compare(x.at, y.at) })
	b := windowBook{window: win}
	var one, all int64
	steps := w.redis.skews
	for _, s := range m.spent {
		for ; len(steps) > 0 && steps[0].until <= s.at; steps = steps[1:] {
			b.step(steps[0])
		}
		at := w.redis.clockAt(s.at)
		b.to(at)
		b.cur, b.own = b.cur+s.n, b.own+s.n
		if all = max(all, b.used(at)-win.Cap); !win.Sliding {
			one = max(one, b.own-win.Rate)
		}
	}
	if win.Sliding {
		one, all = all, 0
	}
	return float64(one) / float64(win.Unit), float64(all) / float64(win.Unit)
}

// checkWindows holds what was admitted against the theorem. What a process owed
// when it crashed, or Redis refused, is forgotten, and may be admitted once
// more. What came more than a window late was within its own window's bound, but
// nobody repays it.
func (w *world) checkWindows(o *outcome) {
	allowed := float64(o.bound+w.untold) + o.gained + 1e-9
	if o.excess > allowed {
		w.fail("excess %.6f, allowed %.6f", o.excess, allowed)
	}
	if allowed += float64(w.late); o.debt > allowed {
		w.fail("excess %.6f over windows in a row, allowed %.6f", o.debt, allowed)
	}
}

// checkCounted holds that Redis has counted everything that it should have,
// once, where nothing was lost: each op in the window that it names.
func (w *world) checkCounted(o *outcome) {
	r := &w.redis
	var s algo.State
	paid := map[modelBatch]bool{}
	for _, a := range r.ledger {
		owed := a.owed
		if paid[a.batch] {
			owed = 0
		}
		paid[a.batch] = true
		granted := a.granted
		if !a.heard {
			granted = 0
		}
		o.extra += a.units() - owed - granted
		s, _, _ = r.limit.Apply(s, algo.Op{Owed: owed, Win: a.win}, a.at)
		s, _, _ = r.limit.Apply(s, algo.Op{Owed: granted}, a.at)
	}
	at, unit := r.tick(w.now), r.bucket.Unit
	have, want := r.peek(algo.Op{}, at).Level, r.limit.Window.Level(r.limit.Load(s, at), at)
	o.under, o.over = float64(have-want)/float64(unit), float64(want-have)/float64(unit)
	// What was debited twice may have left no room for what was owed: below its
	// floor Redis forgives.
	if diff := have - want; max(diff, -diff) > o.extra*unit {
		w.fail("Redis has %.3f units left, %.3f should be; %d too many were debited", float64(have)/float64(unit), float64(want)/float64(unit), o.extra)
	}
}

// balance is what Redis would have left if p paid now.
func (w *world) balance(p *proc) int64 {
	r, at := &w.redis, w.redis.clock(w.now)
	s := r.state
	if p.frozen != nil && r.env[p.id].seq != p.seq {
		s, _, _ = r.limit.Apply(s, algo.Op{Owed: p.s.inflight, Win: p.frozen.op.Win}, at)
	}
	_, ans, _ := r.limit.Apply(s, algo.Op{Owed: p.s.pending, Win: p.s.window}, at)
	return ans.Level
}

// spoilWindow alters what Redis does with an op on a window.
func (r *modelRedis) spoilWindow(s algo.State, op algo.Op, at int64) (algo.State, algo.Op) {
	w := r.limit.Window
	late := op.Win > 0 && op.Win < w.Number(at)
	switch {
	case r.mutant == mutDropLate && late:
		op.Owed = 0
	case r.mutant == mutLateHere && late:
		op.Win = 0
	case r.mutant == mutNoCarry && s.Born != 0:
		if s.Win < w.Number(at) {
			s.Cur = min(s.Cur, w.Rate)
		}
		s = w.Load(s, at)
		s.Prev = 0
	}
	return s, op
}

// stretchWord has a word of credit loaded as if the window did not end, until
// the returned function is called.
func (w *world) stretchWord(p *proc) func() {
	ends := p.s.view.ends
	if w.mutant != mutWordStays || w.now >= ends {
		return func() {}
	}
	p.s.view.ends = never64
	return func() { p.s.view.ends = ends }
}

// astray is what processes may owe, in sub-units: of a window that Redis has
// forgotten, or that was over before they knew, it counts nowhere.
func (w *world) astray() int64 { return int64(len(w.procs)) * w.t.Credit * w.t.Bucket.Unit }

// lastIsSeen says that somebody's view is of the last op, and that he takes the
// window for the one that is: views of another are void.
func (w *world) lastIsSeen() bool {
	r := &w.redis
	if !w.t.windowed() || len(r.ledger) == 0 {
		return false
	}
	last := r.ledger[len(r.ledger)-1]
	return w.t.Window.Number(last.at) == w.t.Window.Number(r.clock(w.now)) && slices.ContainsFunc(w.procs, func(p *proc) bool {
		return p.s.fresh(w.now) && (p.s.view.redisAt > last.at || p.s.view.redisAt == last.at && p.id == last.batch.id)
	})
}

// owedHere has what is owed count in any window, until the returned function is
// called.
func (w *world) owedHere(p *proc) func() {
	window, sent := p.s.window, p.s.sentIn
	if w.mutant != mutOwedDenies {
		return func() {}
	}
	p.s.window, p.s.sentIn = 0, 0
	return func() {
		if window != 0 {
			p.s.window = window
		}
		p.s.sentIn = sent
	}
}
