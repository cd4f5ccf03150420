package account

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is what Redis may lose, and its clock; and what must be true after.

// lossBook is what a run has lost.
type lossBook struct {
	count   int
	shaken  int64 // ns; views from before prove no denial
	lostAt  int64 // Redis time of the last loss of the state
	debited int64 // what Redis had debited by then
	twice   int64 // units debited between losses that not everybody's view survived
	gained  int64 // sub-units that the balance rose by, or could, through losses and clock steps
	saved   *modelRedis
	older   bool // Redis went back to a life before the one that views are of
	prompt  bool // answers are heard before the loss, and views told after it, at once
}

// lose makes Redis forget. A µs passes, because nothing is born in the same µs
// as what was lost before.
func (w *world) lose(what modelKind) {
	r, l := &w.redis, &w.losses
	if l.prompt {
		w.answerAll()
	}
	w.now += 1000
	if what == evFailover && l.saved == nil {
		return
	}
	before := r.peek(algo.Op{}, r.tick(w.now)).Level
	seen := w.lastIsSeen()
	had, out := r.state.Born != 0, r.state.Out[0]+r.state.Out[1]
	if r.mirror != nil {
		r.mirror.lose(what)
	}
	switch what {
	case evSave:
		saved := *r
		saved.env = maps.Clone(r.env)
		l.saved = &saved
		return
	case evFailover:
		l.older = l.older || r.state.Born != l.saved.state.Born
		r.state, r.dies, r.env, r.epoch, r.epochDies = l.saved.state, l.saved.dies, maps.Clone(l.saved.env), l.saved.epoch, l.saved.epochDies
		r.envDies = l.saved.envDies
		l.twice += r.debited - l.saved.debited
		l.shaken = w.now
	case evLoseEnvelopes:
		clear(r.env)
	case evWipe, evLoseKey:
		if what == evWipe {
			clear(r.env)
			r.epoch = 0
			w.loseFleet()
		}
		r.state = algo.State{}
		if !had {
			break
		}
		l.count++
		w.lostAgain()
		l.shaken = w.now
	}
	restored := len(r.ledger)
	if l.prompt && what != evLoseEnvelopes {
		w.restore()
	}
	if what != evLoseEnvelopes { // views say nothing of the ledger
		l.gained += out * r.bucket.Unit
	}
	gained := r.peek(algo.Op{}, r.tick(w.now)).Level - before
	if w.t.windowed() {
		// A view of the last window restores nothing, and waiters are served.
		for _, a := range r.ledger[restored:] {
			gained += a.granted * r.bucket.Unit
			l.gained += a.owed * r.bucket.Unit
		}
		if l.prompt && gained > 0 && seen && what != evLoseEnvelopes {
			w.fail("%d sub-units are forgotten, and the last to ask has told his view", gained)
		}
		l.gained += w.astray()
	}
	l.gained += max(0, gained)
	w.logf("Redis: %s, %d units debited so far", modelKindNames[what], r.debited)
	w.now += 1000
}

// answerAll lets nothing be on its way.
func (w *world) answerAll() {
	for _, p := range w.procs {
		for w.overdue(p) {
			w.leave(p, true)
		}
		if p.frozen != nil {
			w.round(p)
		}
	}
}

// restore lets everybody tell his view, the latest first: whoever comes before
// that is served from a bucket that is too full.
func (w *world) restore() {
	order := slices.Clone(w.procs)
	slices.SortStableFunc(order, func(p, q *proc) int {
		return cmp.Or(cmp.Compare(q.s.view.redisAt, p.s.view.redisAt), cmp.Compare(p.s.view.level, q.s.view.level))
	})
	for _, p := range order {
		w.resyncing(p)
	}
}

// lostAgain notes what may be forgotten: what was debited since the last loss,
// unless everybody had told his view of before it. A state born after a loss,
// full or nearly, also expires soon, and takes with it what was debited since.
func (w *world) lostAgain() {
	l := &w.losses
	if l.count > 0 && !w.allSynced() {
		l.twice += w.redis.debited - l.debited
	}
	l.lostAt, l.debited = w.redis.clock(w.now), w.redis.debited
}

// allSynced reports whether no view, and no answer on its way, is from before
// the last loss.
func (w *world) allSynced() bool {
	for _, p := range w.procs {
		if p.s.view.known && p.s.view.redisAt <= w.losses.lostAt {
			return false
		}
		for _, a := range w.redis.ledger {
			if p.frozen != nil && a.batch == p.frozen.batch && a.at <= w.losses.lostAt {
				return false
			}
		}
	}
	return true
}

// stepClock sets Redis's clock ahead, or back, by µs. To a bucket a step ahead
// of d refills d·rate at once, up to a full bucket, and views and leases know
// nothing of it: so much comes on top of the bound, once for each step. A step
// back gives nothing. To windows a step that enters another one, or moves their
// end, gives Rate and all credit, once: leases and views may outlive their
// window. Any other step back gives a sliding window what had faded.
func (w *world) stepClock(d int64) {
	w.now += 1000 // nothing is applied in the same µs before and after
	r := &w.redis
	before := r.peek(algo.Op{}, r.tick(w.now)).Level
	if d > 0 { // the ledger's generations end early
		w.losses.gained += (r.state.Out[0] + r.state.Out[1]) * r.bucket.Unit
	}
	at, s := r.clock(w.now), skew{until: w.now, was: r.skew}
	r.skew += d
	gained := r.peek(algo.Op{}, r.tick(w.now)).Level - before
	switch {
	case !w.t.windowed():
		w.losses.gained += max(0, gained)
	case d > 0 || d < -algo.ClockSlack || w.t.Window.Number(at) != w.t.Window.Number(at+d):
		w.losses.gained += r.bucket.Cap + w.astray()
	default:
		w.losses.gained += max(0, -gained)
	}
	if w.t.windowed() {
		s.win = r.limit.Load(r.state, at+d).Win
	}
	r.skews = append(r.skews, s)
	if d > 0 || w.t.windowed() {
		w.losses.shaken = w.now
	}
	w.logf("Redis's clock steps by %d µs: %d sub-units", d, gained)
}

// resyncing is a sync of p, if only for its view's sake.
func (w *world) resyncing(p *proc) {
	p.s.resync = w.mutant != mutNoResync
	p.lost = min(w.now, w.losses.shaken+int64(LossNoticed)) // as far as that lets it wait
	w.round(p)
	p.s.resync = false
}

// reference is the balance of a Redis that has lost nothing and heard of every
// unit once: what was owed when it was first applied, and the grants that a
// process has got. Debt stops at floor. extra is the units that the real one
// debited beyond that. The clock must not have stepped.
func (r *modelRedis) reference(at, floor int64) (level, extra int64) {
	level = r.bucket.Cap
	last := at
	paid := map[modelBatch]bool{}
	for _, a := range r.ledger {
		n := a.owed
		if paid[a.batch] {
			n = 0
		}
		if a.heard {
			n += a.granted
		}
		paid[a.batch] = true
		extra += a.units() - n
		level = max(r.bucket.Fill(level, a.at-last)-n*r.bucket.Unit, floor)
		last = a.at
	}
	return r.bucket.Fill(level, at-last), extra
}

// checkRestored lets everybody sync and compares the balance with the
// reference: never above it, but for what was debited between two losses,
// and below it by no more than what was debited twice.
func (w *world) checkRestored(o *outcome) {
	for _, p := range w.procs {
		if !p.away {
			w.resyncing(p)
		}
	}
	r := &w.redis
	b, at := r.bucket, r.tick(w.now)
	level := r.peek(algo.Op{}, at).Level
	most, extra := r.reference(at, -b.Cap)
	least, _ := r.reference(at, -1<<62)
	least = max(least, -b.Cap)
	o.losses, o.extra, o.twice = w.losses.count, extra, w.losses.twice
	o.under, o.over = float64(level-most)/float64(b.Unit), float64(least-level)/float64(b.Unit)
	if r.booked {
		o.over = 0 // the reference knows no ledger, and so fills up further
	}
	if level > most+w.losses.twice*b.Unit {
		w.fail("%.3f units are forgotten, allowed %d", o.under, w.losses.twice)
	}
	// What was debited in an older life comes off views of a later one again.
	if level < least-extra*b.Unit && !r.booked && !w.losses.older {
		w.fail("%.3f units too many are debited, allowed %d", o.over, extra)
	}
}

// checkOnce holds that no batch was applied twice while nothing was lost, and
// every grant got home. A batch that left no state behind, because it took
// nothing of a full bucket, is run again if it arrives again after another one
// has made the state: it may then take what nobody hears of.
func (w *world) checkOnce(o *outcome) {
	times, unstored := map[modelBatch]int{}, map[modelBatch]bool{}
	for _, a := range w.redis.ledger {
		if a.batch.id == 0 {
			continue
		}
		times[a.batch]++
		switch {
		case !a.stored:
			unstored[a.batch] = true
		case unstored[a.batch]:
			o.idle = o.idle || a.units() > 0
		case times[a.batch] > 1:
			w.fail("batch %d of p%d is applied twice", a.batch.seq, a.batch.id)
		case !a.heard:
			w.fail("batch %d of p%d: nobody hears of %d units", a.batch.seq, a.batch.id, a.units())
		}
	}
}
