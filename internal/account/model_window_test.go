package account

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is the part of the model that belongs to windows: their promise, counted at spending time by Redis's clock, and the
// rules that can be switched off.

// family is the set of algorithms from which limits are drawn.
type family uint8

const (
	buckets   family = iota // token and leaky buckets, which have the same arithmetic
	windows                 // fixed and sliding
	queues                  // leaky queues: model_queue_test.go
	calendars               // days, with windows of the calendar: model_calendar_test.go
)

func (f family) String() string { return [...]string{"buckets", "windows", "queues", "calendars"}[f] }

// windowed reports whether the limits of the family are windows.
func (f family) windowed() bool { return f == windows || f == calendars }

// drawWindow draws a limit. With heartbeats a period of hours would take too long.
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

// inMicroseconds rounds a wait down. Redis reports in whole µs how long a window lasts. For a request that took no time, as is
// possible here, this is up to one µs too long.
func inMicroseconds(l hybridlimit.Limit, d time.Duration) time.Duration {
	if algo.LimitOf(l).Window.Period > 0 {
		return d.Truncate(time.Microsecond)
	}
	return d
}

// edges are times near the end of a window, in the order of evEdge's n.
var edges = [...]time.Duration{
	-time.Microsecond, 0, time.Microsecond, -time.Millisecond, time.Millisecond, -tick - time.Millisecond,
	-2*tick - time.Millisecond, tick, -40 * time.Millisecond,
}

// drawCrossing draws a sync during which the window ends, before or after it reaches Redis. There are calls before, between and
// after its steps.
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

// toEdge lets time pass until near the end of a window of Redis's clock.
func (w *world) toEdge(n int64) {
	if !w.t.windowed() {
		return
	}
	at, edge := w.redis.clock(w.now), int64(edges[n%int64(len(edges))])
	end := w.t.Window.Ends(at)
	if (end-at)*1000+edge < 0 {
		end = w.t.Window.Ends(end)
	}
	w.advance(max((end-at)*1000+edge, 0))
}

// skew is the lead of Redis's clock until a time, and the window in which Redis counts from then on.
type skew struct{ until, was, win int64 } // ns, µs

// clockAt returns the time of Redis's clock at a time that may be in the past.
func (r *modelRedis) clockAt(ns int64) int64 {
	for _, s := range r.skews {
		if ns < s.until {
			return modelEpoch + ns/1000 + s.was
		}
	}
	return r.clock(ns)
}

// windowBook counts all units spent in windows. It counts them whether or not Redis knows of them, and without an upper limit.
type windowBook struct {
	window         algo.Window
	win, cur, prev int64
	own            int64 // the part of cur that was not carried
}

// to moves the book forward to a Redis time. A time before its window changes nothing, as Redis stands still when its clock
// steps back.
func (b *windowBook) to(at int64) {
	w := b.window
	win := w.Number(at)
	for b.win < win && b.cur+b.prev > 0 {
		carry := int64(0)
		if !w.Sliding {
			carry = max(0, b.cur-w.Rate)
		}
		b.prev, b.cur, b.own = b.cur, carry, 0
		b.win = w.Number(w.Ends(w.Begin(b.win)))
	}
	b.win = max(b.win, win)
}

// step moves the book over a step of the clock. It goes to the time before the step first, because windows that were over stay
// over. Then it goes to the window in which Redis counts after the step. Windows pass from there on, whether or not units are
// spent in them.
func (b *windowBook) step(s skew) {
	b.to(modelEpoch + s.until/1000 + s.was)
	b.to(b.window.Begin(s.win))
	b.win = s.win
}

// used returns the sub-units that count at a time.
func (b *windowBook) used(at int64) int64 {
	w := b.window
	if !w.Sliding {
		return b.cur
	}
	left := w.Unit - max(at-b.win*w.Period, 0)/w.Tick
	return b.cur*w.Unit + b.prev*left
}

// worst returns how far Rate was exceeded, in units. excess is for one window, or for the estimate at any moment. debt is for
// fixed windows: the excess over Rate for each window, of any windows in a row.
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

// checkWindows compares the admitted units with the theorem. Redis forgets units that a process owed when it crashed, or that
// Redis refused; as many may be admitted once more. Units that arrived more than a window late were within the bound of their
// own window, but no process repays them.
func (w *world) checkWindows(o *outcome) {
	allowed := float64(o.bound+w.untold) + o.gained + 1e-9
	if o.excess > allowed {
		w.fail("excess %.6f, allowed %.6f", o.excess, allowed)
	}
	if allowed += float64(w.late); o.debt > allowed {
		w.fail("excess %.6f over windows in a row, allowed %.6f", o.debt, allowed)
	}
}

// checkCounted verifies that Redis has counted all units once, each op in the window that it names. It applies to runs without
// losses.
func (w *world) checkCounted(o *outcome) {
	r := &w.redis
	var s algo.State
	paid, again := map[modelBatch]bool{}, false
	for _, a := range r.ledger {
		owed, back := a.owed, a.back
		if paid[a.batch] {
			owed, back, again = 0, 0, again || a.batch.id != 0
		}
		paid[a.batch] = true
		granted := a.granted
		if !a.heard {
			granted = 0
		}
		o.extra += a.units() - owed - granted
		ahead := min(a.ahead, granted)
		if a.win > r.here(a.at).Window.Number(a.at) { // a sender with another clock has named the next window
			s.Next, owed = s.Next+owed, 0
		}
		s, _, _ = r.here(a.at).Apply(s, algo.Op{Owed: owed, Win: a.win}, a.at)
		if back > 0 && a.backAt > s.Win {
			s.Next = max(s.Next-back, 0)
		} else {
			s, _, _ = r.here(a.at).Apply(s, algo.Op{Refund: back, RefundAt: a.backAt}, a.at)
		}
		s, _, _ = r.here(a.at).Apply(s, algo.Op{Owed: granted - ahead}, a.at)
		s.Next += ahead
	}
	at, unit := r.tick(w.now), r.bucket.Unit
	have, want := r.peek(algo.Op{}, at).Level, r.limit.Window.Level(r.here(at).Load(s, at), at)
	o.under, o.over = float64(have-want)/float64(unit), float64(want-have)/float64(unit)
	// Units debited twice may have left no room for owed units: below its floor Redis forgives debt.
	// After a gap, the view of a process voids the returns of the others since then, also if nobody hears of the gap. A batch that arrives again when its envelope
	// has expired has the view from before its own return.
	less := o.extra
	if r.gaps || again {
		less += r.taken
	}
	if diff := have - want; diff > o.extra*unit || -diff > less*unit {
		w.fail("Redis has %.3f units left, %.3f should be; %d too many were debited", float64(have)/float64(unit), float64(want)/float64(unit), o.extra)
	}
}

// leasedAhead returns the units that an answer leases of the next window.
func leasedAhead(op algo.Op, ans algo.Answer) int64 {
	if !op.Ahead {
		return 0
	}
	return ans.Lease
}

// balance returns the units that Redis would have left if p paid now.
func (w *world) balance(p *proc) int64 {
	r, at := &w.redis, w.redis.clock(w.now)
	s := r.state
	if env := r.env[p.id]; p.frozen != nil && (env.seq != p.seq || env.ans.Dropped && w.t.Window.Calendar) {
		s, _, _ = r.here(at).Apply(s, algo.Op{Owed: p.s.inflight, Win: p.frozen.op.Win}, at)
	}
	_, ans, _ := r.here(at).Apply(s, algo.Op{Owed: p.s.pending, Win: p.s.window}, at)
	return ans.Level
}

// spoilWindow changes an op on a window, or the state, for a mutant.
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
	return r.spoilNext(s, op, at)
}

// stretchWord makes the next credit budget ignore the end of the window, until the returned function is called.
func (w *world) stretchWord(p *proc) func() {
	ends := p.s.view.ends
	if w.mutant != mutWordStays || w.now >= ends {
		return func() {}
	}
	p.s.view.ends = never64
	return func() { p.s.view.ends = ends }
}

// astray returns the sub-units that processes may owe. They count nowhere if Redis has forgotten their window, or if the window
// was over before the processes knew.
func (w *world) astray() int64 { return int64(len(w.procs)) * w.t.Credit * w.t.Bucket.Unit }

// lastIsSeen reports whether a process has a view that is as new as the last op, and takes its window to be the current window.
// Views of other windows are void. If a batch arrives twice, its second arrival may be in the µs of another answer to the process, and
// an ask without an envelope has two answers then, of which the process hears one.
func (w *world) lastIsSeen() bool {
	r := &w.redis
	if !w.t.windowed() || len(r.ledger) == 0 {
		return false
	}
	last := r.ledger[len(r.ledger)-1]
	again := slices.ContainsFunc(r.ledger[:len(r.ledger)-1], func(a *applied) bool { return a.batch == last.batch })
	if last.batch.bare() && (!last.heard || again) {
		return false
	}
	return w.t.Window.Number(last.at) == w.t.Window.Number(r.clock(w.now)) && slices.ContainsFunc(w.procs, func(p *proc) bool {
		return p.s.fresh(w.now) && w.namesHere(p) && (p.s.view.redisAt > last.at || !again && p.s.view.redisAt == last.at && p.id == last.batch.id)
	})
}

// owedHere makes owed units count in any window until the returned function is called.
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
