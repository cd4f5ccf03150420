package algo

import "math"

// While units are scarce, processes take turns: State.Slot hands out times to
// come back, each as much later as the units need that the visitor takes.
// Nothing is booked; who does not come leaves its units to the next.

// horizon is the µs of its demand that a visitor may take. It is shorter than
// the bucket's time to full, or turns would last beyond a refill that nobody
// expected. The longer the queue, the less each takes: it settles where a
// round of all processes takes ∛load times as long.
func (b Bucket) horizon() float64 {
	return math.Min(Horizon, math.Floor(7*math.Floor(float64(b.Cap)/float64(b.Refill))/20))
}

// quantum is the units that a visitor may take while they are scarce; not
// whole.
func (b Bucket) quantum(s *State, op Op, now int64) float64 {
	h := b.horizon()
	if queue := float64(s.Slot - now); queue > h {
		h *= float64(h/queue) * float64(h/queue)
	}
	return math.Max(1, math.Min(float64(op.Demand)*h/1e9, math.Floor(float64(b.Cap/b.Unit)/8)))
}

// scarce is the level below which turns are taken: what the visits of a round
// hand out, halved.
func (b Bucket) scarce(op Op) float64 {
	return math.Floor(math.Min(float64(b.Cap)/4, math.Max(float64(b.Refill)*Horizon/2, float64(op.Div)*float64(b.Unit)/4)))
}

// turn gives the sender its next turn and reports whether the slot has moved.
func (b Bucket) turn(s *State, op Op, granted, now int64) bool {
	scarce := b.scarce(op)
	if float64(s.Level) >= scarce {
		s.Slot = 0
		return false
	}
	took := math.Max(b.quantum(s, op, now), float64(op.Owed+granted))
	each := float64(b.Unit) / float64(b.Refill)
	// A fuller bucket moves the slot less, an indebted one more: that keeps
	// a little there for whoever comes.
	step := math.Floor(float64(took*each) * float64(1-float64(float64(s.Level)/scarce)))
	last := math.Min(MaxTicket, math.Max(3*b.horizon(), math.Floor(float64(op.Div)/2*each)))
	s.Slot = int64(math.Min(math.Max(float64(s.Slot), float64(now))+step, float64(now)+last))
	return true
}
