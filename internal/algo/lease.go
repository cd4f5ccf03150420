package algo

import "math"

// A lease is units debited now and spent later. The bucket must not become full while
// leased units are unspent, or the fleet could spend both. There are two ways to
// prevent this.
//
// A free lease lives at most for the time in which the bucket fills up from its level
// before the lease. It needs no record: the level and all free leases together are at
// most the level before the oldest of them, plus the refill since.
//
// Near full, that time is too short. Then the ledger records the lease: its units
// lower the level to which the bucket refills. The ledger counts them until the end of
// the generation after their own, which is later than the end of the lease. A sync
// reports the spent units to the ledger and renews the rest.
//
// Level, free leases and ledger together never exceed the bucket.

// generation returns the number of the state's generation: its second of Redis time.
func (s State) generation() int64 { return s.Last / MaxLease }

// edge returns the start of the ledger's next generation.
func (s State) edge() int64 { return (s.generation() + 1) * MaxLease }

func (s State) out() int64 { return s.Out[0] + s.Out[1] }

// ceiling returns the level to which the bucket refills.
func (b Bucket) ceiling(s State) int64 {
	return int64(math.Max(0, float64(b.Cap)-float64(float64(s.out())*float64(b.Unit))))
}

// settle replaces the sender's units in the ledger by those that it still holds. It
// returns false if the ledger has no record of them any more, because the generation
// has passed or the state was lost. It also returns false if Redis has lost writes: a
// batch that is sent again after its envelope was lost would take the same units off
// the ledger twice.
func (s *State) settle(op Op) bool {
	if op.Lost {
		return false // a lost write may have settled it before
	}
	back := s.generation() - op.Gen
	if back != 0 && back != 1 || op.View.Born != s.Born || op.Had > s.Out[back] || op.Keep > op.Had {
		return false
	}
	s.Out[back] -= op.Had
	s.Out[0] += op.Keep
	return true
}

// lease sizes a lease from the free units. before is the level before the grants.
func (b Bucket) lease(s *State, op Op, ans *Answer, before, free int64, refused bool, now int64) {
	life := float64(b.ceiling(*s)-before) / float64(b.Refill)
	if life = math.Floor(math.Min(MaxLease, life)); life >= MinLease {
		ans.Life = int64(life)
	}
	if op.Div > 0 && op.Demand > 0 && !refused {
		part := math.Max(math.Floor(float64(free)/float64(op.Div)), math.Floor(b.quantum(s, op, now)))
		part = math.Min(part, float64(free))
		// The demand of the process in a lease's life, less a standard
		// deviation, so that few units expire.
		mu := float64(op.Demand) * float64(ans.Life) / 1e9
		lease := math.Min(part, math.Floor(mu-math.Sqrt(mu)))
		room := float64(b.Cap/b.Unit/2 - s.out())
		booked := math.Min(math.Min(part, room), math.Floor(float64(op.Demand)/1e3)-float64(op.Keep))
		if ans.Gen == 0 && (booked < 2 || op.Keep > 0) {
			booked = 0 // too few for a record, or the kept units have none
		}
		if booked > lease || ans.Gen != 0 {
			ans.Gen, lease = s.generation(), booked
			s.Out[0] += int64(math.Max(0, booked))
		}
		ans.Lease = int64(math.Max(0, lease))
	}
	if ans.Gen != 0 {
		ans.Life = MaxLease
	}
}
