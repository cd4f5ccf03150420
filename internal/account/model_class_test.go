package account

import (
	"math/rand/v2"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file models classes. In the model each process has one account, so each of them is of one class, or has no classes at all.
// Two accounts of one process differ from that only in their envelope, and in their fallback.

// floorsOf are the floors that a process may have. A negative one stands for a process without classes.
var floorsOf = [...]float64{-1, 0, 0, 0.1, 0.2, 0.35, 0.5}

// drawClasses gives each process a class. One of them is above the others, one below.
func (pl *modelPlan) drawClasses(r *rand.Rand) {
	pl.floors = make([]float64, pl.procs)
	for i := range pl.floors {
		pl.floors[i] = floorsOf[r.IntN(len(floorsOf))]
	}
	pl.floors[r.IntN(len(pl.floors))] = floorsOf[3+r.IntN(4)]
}

// classes puts the classes of the plan into force.
func (pl *modelPlan) classes(w *world) {
	if w.floors = pl.floors; w.floors == nil {
		return
	}
	smallest := 1.0
	for i, p := range w.procs {
		p.plan = w.planOf(i, pl.limit)
		if w.floors[i] > 0 {
			smallest = min(smallest, w.floors[i])
		}
	}
	whole := w.plan.Bucket
	w.redis.reserve = reserve{classes: true, fail: w.fail, uncertain: &w.uncertain}
	if w.plan.Kind == algo.KindBucket && smallest < 1 && pl.hazard == hazClass {
		w.redis.reserve.size = hybridlimit.Class{Floor: smallest}.Units(w.plan.Limit) * whole.Unit
		w.redis.reserve.slack = int64(pl.procs) * pl.credit * whole.Unit
	}
}

// planOf returns the plan of the process at a place.
func (w *world) planOf(place int, limit hybridlimit.Limit) *Plan {
	if w.floors == nil {
		if limit == w.plan.Limit {
			return w.plan
		}
		return NewPlan(limit)
	}
	floor := w.floors[place]
	largest := true
	for _, f := range w.floors {
		largest = largest && f <= floor
	}
	return NewPlan(limit).Above(max(floor, 0), !largest && floor >= 0)
}

// weight returns the number of classes of a process.
func (m *memberBook) weight(p *proc) int64 {
	if !m.classes {
		return 1
	}
	return 1 + int64(p.id)%3
}

// reserve is the smallest floor above 0, as a bucket of its own at the full rate, that only classes without a floor debit. It
// refills no further than the ledger allows. As long as the others keep to their floors, Redis has as many units, except for
// those that others admitted on credit: N·C in all, and not (N - 1)·C, because a process may spend credit while a lease of its own
// is on its way that it will not use. A message without an envelope that arrives after it was given up takes
// units that its sender's view still has.
type reserve struct {
	classes   bool
	size      int64  // sub-units; 0: it is not checked
	slack     int64  // sub-units: N·C
	uncertain *int64 // units of messages without an envelope that were given up
	level     int64  // sub-units, as of the last op that changed the state
	fail      func(format string, args ...any)
}

// checkFloors checks that an op took no unit below its floor, and moved no next poll if it takes no turns. It also checks that the
// reserve is there.
func (r *modelRedis) checkFloors(op algo.Op, next algo.State, ans algo.Answer, dirty bool, at int64) {
	v := &r.reserve
	if !v.classes {
		return
	}
	low := op.Floor * r.limit.Unit()
	left, took := ans.Level, ans.Granted
	if op.Ahead && ans.Lease > 0 && ans.Cap < low {
		v.fail("an op with a floor of %d units leased %d of the next window and left %d sub-units of %d", op.Floor, ans.Lease, ans.Cap, low)
	} else if !op.Ahead {
		took += ans.Lease
	}
	if took > 0 && left < low {
		v.fail("an op with a floor of %d units took %d and left %d sub-units of %d", op.Floor, took, left, low)
	}
	if r.limit.Kind != algo.KindBucket && r.limit.Kind != algo.KindQueue {
		return
	}
	was := r.limit.Load(r.state, at)
	if ahead := was.Slot > at && !op.Reset; op.Upper && op.Div > 0 && ahead && next.Slot != was.Slot {
		v.fail("an op that takes no turns moved the next poll by %d µs", next.Slot-was.Slot)
	}
	if v.size == 0 || r.expiries > 0 || !dirty {
		return
	}
	level := v.size
	if s := r.state; s.Born != 0 {
		s.Level = v.level
		level = min(level, r.limit.Load(s, at).Level)
	}
	if op.Floor == 0 {
		level -= (op.Owed + ans.Granted + ans.Lease) * r.bucket.Unit
	}
	v.level = level
	if slack := v.slack + *v.uncertain*r.bucket.Unit; ans.Level < level-slack {
		v.fail("%d sub-units are left, and the reserve should have %d of %d", ans.Level, level-slack, v.size)
	}
}

// lowest returns the sub-units that a lease must leave.
func (r *modelRedis) lowest(op algo.Op) int64 {
	if r.mutant == mutFloorless {
		return 0
	}
	return op.Floor * r.bucket.Unit
}

// spoilFloor changes an op for a mutant.
func (r *modelRedis) spoilFloor(op algo.Op) algo.Op {
	switch {
	case r.mutant == mutFloorless && len(op.Asks) == 0:
		op.Floor = 0
	case r.mutant == mutUpperTurns:
		op.Upper = false
	}
	return op
}
