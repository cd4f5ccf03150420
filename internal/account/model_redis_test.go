package account

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// modelEpoch is the start of the model's time on Redis's clock: 2025-11-13 in µs. A float loses the same digits here as with a
// real timestamp.
const modelEpoch = 1_763_000_000_000_000

// modelRedis is one key in Redis and the envelopes of all processes. It does what lua/batch.lua does with a batch of one op,
// and uses the real arithmetic. Its times are µs of its own clock.
type modelRedis struct {
	limit  algo.Limit
	bucket algo.Bucket // for a window: only its units
	span   algo.Span   // that the last op named
	mutant mutant
	mirror modelMirror // the real script, given the same ops; nil: no comparison
	skew   int64       // the lead of its clock over the world's clock
	skews  []skew      // the earlier values of skew
	plain  bool        // free leases of all units, no ledger, no next poll
	off    ablation
	least  int64 // µs; shortest lifetime of a state: see modelPlan.other

	writer    algo.Limit // the limit of the op that wrote the state
	sooner    int64      // µs; by how much next places became earlier: see noteStep and noteShorter
	state     algo.State
	written   int64 // when this op wrote the state; 0: it did not
	dies      int64 // end of the state's TTL
	env       map[int]modelEnvelope
	envDies   int64 // not later than the end of the first envelope
	epoch     int64
	epochDies int64
	expiries  int
	disowned  bool   // an envelope of a later batch was taken for a foreign one
	booked    bool   // the ledger was in use at least once
	gaps      bool   // a batch has shown a gap
	expired   func() // called when the state expires

	reserve reserve // of the classes
	ledger  []*applied
	debited int64 // units
	taken   int64 // units that were taken back
}

// modelMirror is another Redis that must give the same answers.
type modelMirror interface {
	tick(at int64)
	batch(b modelBatch, op algo.Op, at int64, want modelReply, r *modelRedis)
	exact(op algo.Op, at int64, want algo.Answer, r *modelRedis)
	lose(what modelKind)
}

type modelBatch struct {
	id  int   // of the process
	seq int64 // negative: there is no envelope
}

type modelEnvelope struct {
	seq, stamp int64
	gap        bool  // a batch before it was missing
	chain      int64 // µs of Redis time; the first batch of the unbroken chain
	ans        algo.Answer
	at         int64 // ns; when the batch was applied
	dies       int64
}

// own reports whether the library can have written a later batch's envelope. A large step back of Redis's clock makes an
// envelope look foreign, see lua/batch.lua.
func (e modelEnvelope) own(at int64) bool {
	return e.stamp <= at+algo.ClockSlack && (e.dies-at)/1000 <= ratesync.EnvelopeTTL.Milliseconds()
}

// applied is one application of a batch. A batch has several only if the state or the envelope was lost, or the key expired,
// between two deliveries.
type applied struct {
	batch   modelBatch
	ns      int64 // world time
	at      int64 // Redis time
	owed    int64 // units
	win     int64 // the window of the units
	granted int64 // lease included
	ahead   int64 // the part of granted that is leased of the next window
	back    int64 // units that Redis took back, of unspent leases
	backAt  int64 // the window of those units
	heard   bool  // the process got the answer
	stored  bool  // a state existed afterwards
}

func (a *applied) units() int64 { return a.owed + a.granted }

// modelReply is the reply to a batch. at is the time of the grants.
type modelReply struct {
	ans              algo.Answer
	seen, stale, gap bool
	epoch            int64
	now              int64 // µs
	at               int64 // ns
	skew             int64 // µs; of the clock that shows now
	fresh            bool  // for a mutant: the state had to be created
	taken            int64 // units taken back so far
}

// under makes the next op count by the limit of plan p, and name a window. Each op brings its own limit.
func (r *modelRedis) under(p *Plan, span algo.Span) *modelRedis {
	r.limit, r.bucket, r.span = algo.LimitOf(p.Limit), p.Whole().Bucket, span
	r.limit.Window = r.limit.Window.In(span)
	r.written = 0
	return r
}

// here returns the limit of the last op, with the window of a Redis time.
func (r *modelRedis) here(at int64) algo.Limit {
	l := r.limit
	l.Window = l.Window.At(at)
	return l
}

// apply runs a batch that arrives at now (ns). A batch older than the last one gets no answer.
func (r *modelRedis) apply(b modelBatch, op algo.Op, now int64) (modelReply, bool) {
	at := r.tick(now)
	if b.bare() {
		return r.bare(b, op, at, now), true
	}
	rep := modelReply{now: at, at: now, skew: r.skew, epoch: r.epoch}
	if rep.epoch == 0 {
		rep.epoch = at
	}
	env, have := r.env[b.id]
	if have && env.seq > b.seq && !env.own(at) {
		have, r.disowned = false, true
	}
	if r.mutant == mutNoEnvelope {
		have = false
	}
	if have && env.seq > b.seq && r.mutant != mutStaleApplied {
		rep.stale = true
		r.compare(b, op, at, rep)
		return rep, false
	}
	rep.seen = have && env.seq == b.seq
	rep.gap = b.seq > 1 && (!have || env.seq < b.seq-1) || rep.seen && env.gap
	r.gaps = r.gaps || rep.gap
	op.Lost = op.Lost || rep.gap && r.mutant != mutGapSettles
	chain := at
	if have && !rep.gap && env.chain <= at {
		chain = env.chain
	}
	op.Broken = op.View.At < chain && r.mutant != mutGapSettles
	if whole := r.state.Born != 0 && r.state.Born <= env.stamp; rep.seen && (whole || r.mutant == mutSkipEvicted) {
		_, ans, _ := r.limit.Apply(r.state, algo.Op{}, at)
		ans.Granted, ans.Lease, ans.Life, ans.Gen = env.ans.Granted, env.ans.Lease, env.ans.Life, env.ans.Gen
		ans.Dropped, ans.Refused = env.ans.Dropped, env.ans.Refused
		if r.bucket.Queue {
			ans.Delay = max(0, env.ans.Delay-max(0, at-env.stamp))
		}
		if r.mutant == mutNoReplay {
			ans.Granted, ans.Lease, ans.Life = 0, 0, 0
		}
		rep.ans, rep.at = ans, env.at
	} else {
		rep.fresh = r.state.Born == 0
		rep.ans = r.run(op, at)
		if r.mutant == mutLongLife {
			rep.ans.Life = algo.Generation
		}
		owed := op.Owed
		if rep.ans.Dropped {
			owed = 0
		}
		back := op.Back
		if rep.ans.Refused {
			back = 0
		}
		r.book(&applied{batch: b, ns: now, at: at, owed: owed, win: r.countedIn(op), granted: rep.ans.Granted + rep.ans.Lease, ahead: leasedAhead(op, rep.ans), back: back, backAt: op.Gen, stored: rep.ans.Born != 0})
	}
	stamp := max(at, rep.ans.Born) // in the future if the clock stepped back
	if r.mutant == mutStampNow {
		stamp = at
	}
	dies := at + ratesync.EnvelopeTTL.Microseconds()
	r.envDies = min(r.envDies, dies)
	r.env[b.id] = modelEnvelope{b.seq, stamp, rep.gap, chain, rep.ans, rep.at, dies}
	keep := ratesync.EnvelopeTTL.Microseconds()
	if r.written == at && r.limit.Window.Calendar {
		keep = max(keep, r.dies-at)
	}
	if r.epoch == 0 || (r.epochDies-at)/1000 < keep/1000 {
		r.epoch, r.epochDies = rep.epoch, at+keep+time.Second.Microseconds()
	}
	r.compare(b, op, at, rep)
	rep.taken = r.taken
	return rep, true
}

// bare is apply for a batch without an envelope.
func (r *modelRedis) bare(b modelBatch, op algo.Op, at, now int64) modelReply {
	rep := modelReply{now: at, at: now, skew: r.skew, ans: r.run(op, at), taken: r.taken}
	r.book(&applied{batch: b, ns: now, at: at, owed: op.Owed, win: r.countedIn(op), granted: rep.ans.Granted, stored: rep.ans.Born != 0})
	if r.mirror != nil {
		r.mirror.exact(op, at, rep.ans, r)
	}
	return rep
}

func (r *modelRedis) compare(b modelBatch, op algo.Op, at int64, rep modelReply) {
	if r.mirror != nil {
		r.mirror.batch(b, op, at, rep, r)
	}
}

// clock returns the time of Redis's clock.
func (r *modelRedis) clock(now int64) int64 { return modelEpoch + now/1000 + r.skew }

// tick returns the time of Redis's clock and removes all expired data.
func (r *modelRedis) tick(now int64) int64 {
	at := r.clock(now)
	if r.mirror != nil {
		r.mirror.tick(at)
	}
	if r.state.Born != 0 && at >= r.dies {
		r.state = algo.State{}
		r.expiries++
		if r.expired != nil {
			r.expired()
		}
	}
	if at >= r.envDies {
		r.envDies = math.MaxInt64
		for id, e := range r.env {
			if at >= e.dies {
				delete(r.env, id)
				r.expiries++
			} else {
				r.envDies = min(r.envDies, e.dies)
			}
		}
	}
	if at >= r.epochDies {
		r.epoch = 0
	}
	return at
}

// run applies an op and stores the state.
func (r *modelRedis) run(op algo.Op, at int64) algo.Answer {
	r.noteShorter()
	s := r.state
	switch {
	case r.mutant == mutNoMerge || r.mutant == mutFresh:
		op.View = algo.View{}
	case r.mutant == mutNoSince:
		s.Since = 0
	case r.mutant == mutClockResets && at < s.Last:
		s = algo.State{}
	case r.mutant == mutNoCeiling && s.Born != 0:
		out := s.Out
		s.Out = [2]int64{}
		s = r.limit.Load(s, at)
		s.Out = out // so that Load, in Apply, refills nothing
		defer func(level int64) { r.state.Level += level }(s.Level - min(s.Level, r.bucket.Cap-(out[0]+out[1])*r.bucket.Unit))
	}
	s, op = r.spoilLedger(s, op, at)
	wants := op.Demand > 0 && op.Div > 0
	if r.plain {
		op.Div = 0
	}
	switch {
	case r.off == withoutLedger:
		op.Gen, op.Keep = 0, 1 // as if the ledger had forgotten a lease
	case r.off == withoutSizing && wants:
		op.Demand = 1 << 40
	}
	if r.limit.Window.Period > 0 {
		s, op = r.spoilWindow(s, op, at)
	}
	s, show := r.hideNext(s, op, at)
	told := op
	op = r.spoilFloor(op)
	next, ans, dirty := r.limit.Apply(s, op, r.spoilRules(s, at))
	show(&next, &ans)
	if r.mutant == mutForgottenBack && ans.Refused && r.limit.Window.Period == 0 {
		next.Level = min(next.Level+op.Back*r.bucket.Unit, r.bucket.Cap-(next.Out[0]+next.Out[1])*r.bucket.Unit)
		ans.Level = next.Level
	}
	switch {
	case r.off == withoutTurns:
		next.Slot, ans.Retry = 0, r.bucket.Wait(ans.Level, 1)
	case r.off == withoutFree && ans.Gen == 0:
		next.Level, next.Since = next.Level+ans.Lease*r.bucket.Unit, next.Since-ans.Lease
		ans.Lease, ans.Level = 0, next.Level
	}
	if r.plain && wants && ans.Life > 0 && ans.Granted == sum(op.Asks) {
		ans.Lease = r.bucket.Units(next.Level - r.lowest(op))
		next.Level -= ans.Lease * r.bucket.Unit
		next.Since += ans.Lease
		ans.Level, ans.Born, dirty = next.Level, next.Born, dirty || ans.Lease > 0
	}
	r.booked = r.booked || ans.Gen != 0
	r.checkFloors(told, next, ans, dirty, at)
	if dirty {
		if r.mutant == mutNoSince {
			next.Since += r.state.Since
		}
		r.writer = r.limit
		r.state, r.written, r.dies = next, at, at+max(r.limit.TTL(next, at)*1000, r.least)
	}
	return ans
}

func sum(ns []int64) (total int64) {
	for _, n := range ns {
		total += n
	}
	return total
}

// exact applies an op without an envelope.
func (r *modelRedis) exact(n, floor, now int64) (granted bool, delay int64) {
	at, op := r.tick(now), algo.Op{Asks: []int64{n}, Floor: floor}
	ans := r.run(op, at)
	r.book(&applied{ns: now, at: at, granted: ans.Granted, heard: true})
	if r.mirror != nil {
		r.mirror.exact(op, at, ans, r)
	}
	return ans.Granted > 0, ans.Delay * 1000
}

// peek returns the answer that op would get at a Redis time.
func (r *modelRedis) peek(op algo.Op, at int64) algo.Answer {
	_, ans, _ := r.here(at).Apply(r.state, op, at)
	return ans
}

func (r *modelRedis) book(a *applied) {
	r.debited, r.taken = r.debited+a.units(), r.taken+a.back
	r.ledger = append(r.ledger, a)
}

// heard records that the process got the answer of the application at that time.
func (r *modelRedis) heard(b modelBatch, at int64) {
	for i := len(r.ledger) - 1; i >= 0; i-- {
		if a := r.ledger[i]; a.batch == b && a.ns == at && !a.heard {
			a.heard = true
			return
		}
	}
}

// wasted is the number of units that were debited while no process heard of them. Their batches came from crashed processes, or
// were given up after they were applied, or were applied twice because the state no longer existed.
func (r *modelRedis) wasted() int64 {
	var sum int64
	for _, a := range r.ledger {
		if !a.heard {
			sum += a.units() - a.back
		}
	}
	return sum
}
