package account

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file models losses of data in Redis and steps of Redis's clock. It also checks the state after them.

// lossBook records the losses of a run.
type lossBook struct {
	count   int
	shaken  int64 // ns; a view from before this time proves no denial
	lostAt  int64 // Redis time of the last loss of the state
	debited int64 // units that Redis had debited by then
	twice   int64 // units debited between two losses while some view was still from before the first
	gained  int64 // sub-units by which losses and clock steps raised the balance, or could
	saved   *modelRedis
	older   bool // Redis went back to a state older than the one that the views describe
	prompt  bool // all answers arrive before the loss, and all views are sent right after it
	untold  bool // a new view replaced one that Redis had forgotten and that nobody told: see noteUntold
}

// lose makes Redis lose data. One µs passes first: a state is never created in the same µs as the lost state.
func (w *world) lose(what modelKind) {
	r, l := &w.redis, &w.losses
	if l.prompt {
		w.answerAll()
	}
	w.now += 1000
	if what == evFailover && l.saved == nil {
		return
	}
	at := r.tick(w.now)
	before, next := r.peek(algo.Op{}, at).Level, r.nextBegins(at)
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
		l.gained += (r.taken - l.saved.taken) * r.bucket.Unit // a return that was lost can be sent again
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
	if what != evLoseEnvelopes { // views do not contain the ledger
		l.gained += out * r.bucket.Unit
	}
	gained := r.peek(algo.Op{}, r.tick(w.now)).Level - before
	if w.t.windowed() {
		// A view of the last window restores nothing. Waiting calls are served.
		gone := next - r.nextBegins(r.tick(w.now))
		for _, a := range r.ledger[restored:] {
			now, later := a.counted(r.limit.Window)
			gained, gone = gained+now*r.bucket.Unit, gone+later
			l.gained += a.owed * r.bucket.Unit
		}
		if l.prompt && max(gained, gone) > 0 && seen && what != evLoseEnvelopes {
			w.fail("%d sub-units and %d units of the next window are forgotten, and the last to ask has told his view", gained, gone)
		}
		l.gained += w.astray()
		if gone = max(0, gone) * r.bucket.Unit; w.t.Window.Sliding { // the same units
			gained = max(gained, gone)
		} else {
			l.gained += gone
		}
	}
	l.gained += max(0, gained)
	w.logf("Redis: %s, %d units debited so far", modelKindNames[what], r.debited)
	w.now += 1000
}

// answerAll completes all syncs in flight.
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

// restore makes all processes send their views, the latest view first, and views that do not count last. A process that syncs
// earlier is served from a bucket that is too full.
func (w *world) restore() {
	order := slices.Clone(w.procs)
	slices.SortStableFunc(order, func(p, q *proc) int {
		if w.counts(p) != w.counts(q) {
			if w.counts(p) {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(q.s.view.redisAt, p.s.view.redisAt), cmp.Compare(p.s.view.level, q.s.view.level))
	})
	for _, p := range order {
		told, before := w.counts(p) && !slices.ContainsFunc(order, w.concealed), len(w.redis.ledger)
		w.resyncing(p)
		for _, a := range w.redis.ledger[before:] {
			if !told { // Redis grants from a state that does not have all units of the views
				w.losses.gained += a.granted * w.t.Bucket.Unit
			}
		}
	}
}

// concealed reports whether p has a view of Redis's present window, and does not tell it so that it counts: its answer took longer than the
// window, or it names the next one.
func (w *world) concealed(p *proc) bool {
	v := &p.s.view
	return w.t.windowed() && v.known() && (!p.s.Tells(w.t.Bucket, w.now) || !w.namesHere(p)) && w.t.Window.Number(v.redisAt) == w.t.Window.Number(w.redis.clock(w.now))
}

// counts reports whether p tells Redis its view, and Redis uses it. After a late answer p may take the view's window as over before
// it is.
func (w *world) counts(p *proc) bool {
	v := &p.s.view
	return p.s.Tells(w.t.Bucket, w.now) && w.namesHere(p) && (!w.t.windowed() || w.t.Window.Number(v.redisAt) == w.t.Window.Number(w.redis.clock(w.now)))
}

// lostAgain records how much may be forgotten: the units debited since the last loss. It is nothing if all processes have sent
// their views from before that loss. A state that was created after a loss and is full, or nearly full, expires soon. The units
// debited since then are lost with it.
func (w *world) lostAgain() {
	l := &w.losses
	if l.count > 0 && !w.allSynced() {
		l.twice += w.redis.debited - l.debited
	}
	l.lostAt, l.debited = w.redis.clock(w.now), w.redis.debited
}

// noteUntold notes an op of p that does not tell the view, because p asks alone, or because the bucket of the view is full by
// now. It is, in time, also if Redis forgot the view before that, together with units that were debited since. In the library
// a heartbeat tells the view within 2.5 s of the loss. The model has no heartbeats, so a process may say nothing for longer.
func (w *world) noteUntold(p *proc, c *Conditions, op *algo.Op) {
	v, l := &p.s.view, &w.losses
	if op.View != (algo.View{}) || !v.known() || v.createdAt == 0 || l.count == 0 || v.redisAt > l.lostAt {
		return
	}
	full := !w.t.windowed() && w.t.Bucket.Fill(v.level+c.Floor*w.t.Bucket.Unit, w.redis.clock(w.now)-v.redisAt) == w.t.Bucket.Cap
	l.untold = l.untold || p.s.lone || full
}

// allSynced reports whether all views, and all answers in flight, are from after the last loss.
func (w *world) allSynced() bool {
	for _, p := range w.procs {
		if p.s.view.known() && p.s.view.redisAt <= w.losses.lostAt {
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

// stepClock moves Redis's clock by d µs, forward or back.
//
// Buckets: a step forward refills d·rate at once, up to a full bucket. Views and leases do not notice it. The bound grows by
// this refill once per step. A step back adds nothing.
//
// Queues: a step forward serves the content of the queue earlier. So does a step back if it ends a freeze of the state.
//
// Windows: a step into another window, or one that moves the end of the window, adds Rate and all credit once, because leases
// and views may outlive their window. Any other step back gives a sliding window the units that had already faded out. Each step
// adds the units that are leased of the next window, because a process may then spend them before that begins.
func (w *world) stepClock(d int64) {
	w.now += 1000 // so that no op is applied in the same µs before and after the step
	r := &w.redis
	before := r.peek(algo.Op{}, r.tick(w.now)).Level
	if d > 0 { // the generations of the ledger end early
		w.losses.gained += (r.state.Out[0] + r.state.Out[1]) * r.bucket.Unit
	}
	at, s := r.clock(w.now), skew{until: w.now, was: r.skew}
	if w.t.windowed() {
		w.losses.gained += r.here(at).Load(r.state, at).Next * r.bucket.Unit
	}
	lasted := r.lasts(at)
	r.skew += d
	w.noteStep(lasted, at+d, d)
	gained := r.peek(algo.Op{}, r.tick(w.now)).Level - before
	switch {
	case w.t.Bucket.Queue: // see noteStep
	case !w.t.windowed():
		w.losses.gained += max(0, gained)
	case d > 0 || d < -algo.ClockSlack || w.t.Window.Number(at) != w.t.Window.Number(at+d):
		w.losses.gained += r.bucket.Cap + w.astray()
	default:
		w.losses.gained += max(0, -gained)
	}
	if w.t.windowed() {
		s.win = r.here(at+d).Load(r.state, at+d).Win
	}
	r.skews = append(r.skews, s)
	if d > 0 || w.t.windowed() {
		w.losses.shaken = w.now
	}
	w.logf("Redis's clock steps by %d µs: %d sub-units", d, gained)
}

// resyncing runs a sync of p, even if only to send its view.
func (w *world) resyncing(p *proc) {
	p.s.resync = w.mutant != mutNoResync
	p.lost = min(w.now, w.losses.shaken+int64(LossNoticed)) // but not later than the wait limit allows
	w.round(p)
	p.s.resync = false
}

// reference computes the balance of a Redis that has lost nothing and counts every unit once: the units owed, at their first
// application, and the grants that a process received. The debt ends at floor. extra is the number of units that the real Redis
// debited in addition. The clock must not have stepped.
func (r *modelRedis) reference(at, floor int64) (level, extra int64) {
	level = r.bucket.Cap
	last := at
	paid := map[modelBatch]bool{}
	for _, a := range r.ledger {
		owed, granted := a.owed, a.granted
		if paid[a.batch] {
			owed = 0
		}
		if !a.heard {
			granted = 0
		}
		paid[a.batch] = true
		extra += a.units() - owed - granted
		level = max(r.bucket.Fill(level, a.at-last)-owed*r.bucket.Unit, floor)
		level = max(min(level+a.back*r.bucket.Unit, r.bucket.Cap)-granted*r.bucket.Unit, floor)
		last = a.at
	}
	return r.bucket.Fill(level, at-last), extra
}

// checkRestored makes all processes sync and compares the balance with the reference. The balance is above the reference by at
// most the units debited between two losses. It is below it by at most the units debited twice.
func (w *world) checkRestored(o *outcome) {
	w.redis.reserve.size = 0 // a view that is told as after a loss undoes returns, on the safe side of the bound
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
		o.over = 0 // the reference has no ledger and therefore refills further
	}
	// A return can make a state look rolled back to a process that has not told its view since a loss. That process then names
	// the state anew, and the views from before the loss do not count the units debited since. Such views, and those that were
	// never told, do not restore the units that the losses raised.
	allowed := w.losses.twice
	if w.losses.count > 0 {
		allowed += r.taken
	}
	if w.losses.untold || w.losses.count > 0 && r.taken > 0 {
		allowed += (w.losses.gained + b.Unit - 1) / b.Unit
	}
	if level > most+allowed*b.Unit {
		w.fail("%.3f units are forgotten, allowed %d", o.under, allowed)
	}
	// Units debited in an older state are subtracted again from views of a later state.
	if level < least-extra*b.Unit && !r.booked && !w.losses.older {
		w.fail("%.3f units too many are debited, allowed %d", o.over, extra)
	}
}

// checkOnce verifies that no batch was applied twice while nothing was lost, and that every grant reached its process. One case
// is permitted. A batch that took nothing from a full bucket leaves no state in Redis. If it arrives again after another batch
// created the state, it runs again. It may then take units that no process hears of. A batch without an envelope may have no
// answer: its process then counts its units as uncertain.
func (w *world) checkOnce(o *outcome) {
	times, unstored := map[modelBatch]int{}, map[modelBatch]bool{}
	bare := int64(0)
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
		case a.batch.bare() && !a.heard: // its units are lost
			bare += a.units()
		case !a.heard:
			w.fail("batch %d of p%d: nobody hears of %d units", a.batch.seq, a.batch.id, a.units())
		}
	}
	if bare > w.uncertain {
		w.fail("%d units of asks without an answer were debited, the processes know of %d", bare, w.uncertain)
	}
}
