package algo

import "math"

// While units are contended, processes take turns. Each gets the time of its next poll from State.Slot, which then
// moves by the time in which the units that it takes come back. Nothing is booked: if a process does not poll, the next
// one gets the units.
//
// A low level alone proves no contention: one process may empty the bucket, and is right to do so. Turns begin with an
// ask that is refused, or with a level below one unit. They go on while a poll that was given out lies ahead. The last
// places of a queue are always contended: without turns a fleet leaves more of them empty.

// Turns are those of the class with the largest floor. A class above it asks when it likes: its floor was left to it.
// While it has used that up too, it stays away for the time of one unit for each process: see stayAway.

// horizon returns the time, in µs, whose demand a process may take at its next poll: half of the longest life of a free
// lease. It is shorter than the bucket's time to full, or turns would last beyond an unexpected refill.
func (b Bucket) horizon(life int64) float64 {
	return math.Min(float64(life/2), math.Floor(7*math.Floor(float64(b.Cap)/float64(b.Refill))/20))
}

// quantum returns the units that a process may take at its next poll, as a fraction. The longer the queue of polls, the
// fewer units each process takes. This is stable when a round of all processes takes ∛load times as long. h is the
// horizon.
func (b Bucket) quantum(op Op, h float64, wait int64) float64 {
	if queue := float64(wait); queue > h && !op.Upper {
		h *= float64(h/queue) * float64(h/queue)
	}
	return math.Max(1, math.Min(float64(op.Demand)*h/1e9, math.Floor(float64(b.Cap/b.Unit)/8)))
}

// books returns the units for which the sender's next poll is given time: its quantum. But the first polls of a
// contention find a short queue. With the time of that quantum, which they then spend in the whole horizon, the rate of
// a fleet swings for several rounds. So a sender that comes from no queue gets the time of at most the quantum of a long
// one, as if all processes had its demand: the demand in the horizon / load^⅝, which roots give the same value in Lua.
func (b Bucket) books(op Op, h float64, wait int64) float64 {
	quantum := b.quantum(op, h, wait)
	load := float64(op.Div) / 2 * float64(op.Demand) / 1e9 * (float64(b.Unit) / float64(b.Refill))
	if op.Queued || load <= 1 {
		return quantum
	}
	most := float64(op.Demand) * h / 1e9 / math.Sqrt(float64(load*math.Sqrt(math.Sqrt(load))))
	return math.Max(1, math.Min(quantum, most))
}

// scarce returns the level below which processes take turns: half of the units that a round hands out.
func (b Bucket) scarce(op Op, life int64) float64 {
	return math.Floor(math.Min(float64(b.Cap)/4, math.Max(float64(b.Refill)*float64(life/4), float64(op.Div)*float64(b.Unit)/4)))
}

// longest returns the longest time, in µs, until a next poll of a fleet that is not sparse. A round of a small fleet is
// short, because no process takes more than an eighth of the burst. Without that bound a few ops in a row, each of which
// moves Slot, would keep a process away for seconds.
func (b Bucket) longest(op Op, h float64) float64 {
	round := float64(op.Div) / 2 * math.Floor(float64(b.Cap)/float64(b.Refill)) / 8
	return math.Min(3*h, math.Max(3*math.Min(h, Generation/2), round))
}

// turn gives the sender the time of its next poll. It reports whether Slot moved. refused is the first ask that was
// refused. An ask above the burst is refused at any level and proves nothing.
func (b Bucket) turn(s *State, op Op, granted, refused, now int64) bool {
	low := b.low(op.Floor)
	life := b.Life(op.MaxLife)
	scarce, level, h := b.scarce(op, life), s.Level-low, b.horizon(life)
	contended := b.Queue || s.Slot > now || level < b.Unit || refused > 0 && refused <= (b.Cap-low)/b.Unit
	if float64(level) >= scarce || !contended {
		s.Slot = 0
		return false
	}
	took := math.Max(b.books(op, h, s.Slot-now), float64(op.Owed+granted))
	each := float64(b.Unit) / float64(b.Refill)
	// A fuller bucket moves Slot less, a bucket in debt more. That keeps some units for the next process.
	step := math.Floor(float64(took*each) * float64(1-float64(float64(level)/scarce)))
	last := math.Min(MaxTicket, math.Max(b.longest(op, h), math.Floor(float64(op.Div)/2*each)))
	s.Slot = int64(math.Min(math.Max(float64(s.Slot), float64(now))+step, float64(now)+last))
	return true
}

// stayAway returns the µs until the next poll of a class that takes no turns: 0 while it has a unit, else the time in
// which one unit for each process comes back.
func (b Bucket) stayAway(s State, op Op) int64 {
	if s.Level-b.low(op.Floor) >= b.Unit {
		return 0
	}
	each := float64(b.Unit) / float64(b.Refill)
	return int64(math.Min(MaxTicket, math.Floor(float64(op.Div)/2*each)))
}
