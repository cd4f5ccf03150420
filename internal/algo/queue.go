package algo

import "math"

// A leaky queue is a bucket whose level is what is left of the queue, Burst −
// depth. What enters is served when all before it was, depth·e later. A lease
// is a block of slots, those right behind what was granted. They have times of
// their own, so nothing need be remembered of them: a slot that nobody has
// taken when its time comes is lost, to the whole fleet.

// grant is how many of n units a level allows, and in how many µs they may be
// used. A patient ask may leave a bucket in debt; it is whole, or none. A queue
// is as long as it is, however patient who asks.
func (b Bucket) grant(level, n, frozen int64, op Op) (units, delay int64) {
	switch free := b.Units(level); {
	case n < 1:
		return 0, 0
	case n <= free:
		units = n
	case op.Partial:
		units = free
	case op.MaxDelay > 0 && !b.Queue && n <= b.Cap/b.Unit && n*b.Unit <= level+b.Cap:
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

// slots sizes a block of slots: a part of the queue as of a bucket, and what
// the process uses up to the time of the first of them, less a standard
// deviation, so that few are lost. Where nobody queues there is no such time:
// who leased slots then would make others wait for it.
func (b Bucket) slots(s *State, op Op, ans *Answer, refused bool, frozen, now int64) {
	if op.Div < 1 || op.Demand < 1 || refused {
		return
	}
	free, delay := float64(b.Units(s.Level)), b.delay(s.Level, 1, frozen)
	part := math.Max(math.Floor(free/float64(op.Div)), math.Floor(b.quantum(s, op, now)))
	mu := float64(op.Demand) * math.Min(MaxLease, float64(delay)) / 1e9
	ans.Lease = int64(math.Max(0, math.Min(math.Min(part, free), math.Floor(mu-math.Sqrt(mu)))))
	if ans.Lease > 0 && ans.Granted == 0 {
		ans.Delay = delay
	}
}

// delay is how many µs after it is granted at a level an ask for n units may
// be used: when the queue has been served, or the bucket would have held n.
func (b Bucket) delay(level, n, frozen int64) int64 {
	if b.Queue {
		return thaw(b.wait(b.Cap-level), frozen)
	}
	return thaw(b.wait(n*b.Unit-level), frozen)
}

// retry is how many µs until an ask for n units succeeds; Never above the
// burst.
func (b Bucket) retry(level, n, frozen, patience int64, partial bool) int64 {
	if n > b.Cap/b.Unit {
		return Never
	}
	need := n * b.Unit
	if patience == 0 {
		return thaw(b.wait(need-level), frozen)
	}
	late := b.delay(level, n, frozen) - patience
	if !partial && !b.Queue {
		need -= b.Cap
	}
	return max(thaw(b.wait(need-level), frozen), late)
}

// thaw adds to a wait the time for which a clock that stepped back keeps the
// state frozen.
func thaw(wait, frozen int64) int64 {
	if wait > 0 {
		return wait + frozen
	}
	return 0
}
