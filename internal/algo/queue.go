package algo

import "math"

// A leaky queue is a bucket whose level is the room left in the queue, Burst − depth. With e the time to serve one
// unit, a new unit is served depth·e later, when all units before it were. A lease is a block of slots, directly behind
// the granted units. Each slot has a time, so the ledger does not record it: a slot that is unused at its time is lost
// for the whole fleet.

// grant returns the number of the n units that a level permits, and the µs until they may be used. An ask with MaxDelay
// may leave a bucket in debt; it gets all units or none. MaxDelay does not make a queue longer.
func (b Bucket) grant(level, n, frozen int64, op Op) (units, delay int64) {
	switch free := b.Units(level - b.low(op.Floor)); {
	case n < 1:
		return 0, 0
	case n <= free:
		units = n
	case op.Partial:
		units = free
	case op.MaxDelay > 0 && op.Floor == 0 && !b.Queue && n <= b.Cap/b.Unit && n*b.Unit <= level+b.Cap:
		units = n
	}
	if units > 0 {
		delay = b.delay(level, units, frozen)
		if op.MaxDelay > 0 && delay > op.MaxDelay {
			return 0, 0
		}
	}
	return units, delay
}

// slots sizes a block of slots. It takes a part of the queue, as lease does of a bucket. It takes at most the demand of
// the process until the time of the first slot, less a standard deviation, so that few slots are lost. If the queue is
// empty, that time is 0 and there is no lease: leased slots would make others wait.
func (b Bucket) slots(s *State, op Op, ans *Answer, refused bool, frozen, now int64) {
	if op.Div < 1 || op.Demand < 1 || refused {
		return
	}
	free, delay := float64(b.Units(s.Level-b.low(op.Floor))), b.delay(s.Level, 1, frozen)
	part := math.Max(math.Floor(free/float64(op.Div)), math.Floor(b.quantum(op, b.horizon(Generation), s.Slot-now)))
	mu := float64(op.Demand) * math.Min(Generation, float64(delay)) / 1e9
	ans.Lease = int64(math.Max(0, math.Min(math.Min(part, free), math.Floor(mu-math.Sqrt(mu)))))
	if ans.Lease > 0 && ans.Granted == 0 {
		ans.Delay = delay
	}
}

// delay returns the µs until n units granted at a level may be used: until the queue has been served, or until the
// bucket would have held n.
func (b Bucket) delay(level, n, frozen int64) int64 {
	if b.Queue {
		return thaw(b.wait(b.Cap-level), frozen)
	}
	return thaw(b.wait(n*b.Unit-level), frozen)
}

// retry returns the µs until an ask of an op for n units succeeds, and Never above the burst less the floor. A bucket
// with a floor is not booked ahead, so patience does not help there.
func (b Bucket) retry(level, n, frozen, patience int64, op Op) int64 {
	low := b.low(op.Floor)
	if n > (b.Cap-low)/b.Unit {
		return Never
	}
	need := n*b.Unit + low
	if patience == 0 || low > 0 && !b.Queue {
		return thaw(b.wait(need-level), frozen)
	}
	late := b.delay(level, n, frozen) - patience
	if !op.Partial && !b.Queue {
		need -= b.Cap
	}
	return max(thaw(b.wait(need-level), frozen), late)
}

// thaw adds to a wait the time for which the state is frozen after Redis's clock stepped back.
func thaw(wait, frozen int64) int64 {
	if wait > 0 {
		return wait + frozen
	}
	return 0
}
