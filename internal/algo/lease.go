package algo

import "math"

// A lease is units debited now and spent later. It must not be out while the
// bucket fills up behind it, or the fleet could spend both. There are two ways:
//
// A free lease lives no longer than the bucket needs to fill up from where it
// was before: nothing has to be remembered. Level and all that is out of free
// leases at a time is at most what was there before the oldest of them, and
// what has come back since.
//
// Near full, where that is too short, the ledger remembers: units that it
// holds lower the level to which the bucket refills. It counts them for the
// generation of a second in which they were leased and for the next, which is
// longer than they live. A sync tells it which are spent, and renews the rest.
//
// Level, free leases and ledger together never exceed the bucket.

// generation numbers the seconds of Redis time.
func (s State) generation() int64 { return s.Last / MaxLease }

// edge is when the ledger's next generation begins.
func (s State) edge() int64 { return (s.generation() + 1) * MaxLease }

func (s State) out() int64 { return s.Out[0] + s.Out[1] }

// ceiling is the level to which the bucket refills.
func (b Bucket) ceiling(s State) int64 {
	return int64(math.Max(0, float64(b.Cap)-float64(float64(s.out())*float64(b.Unit))))
}

// settle replaces what the ledger holds for the sender by what it still has in
// hand. It reports false where the ledger knows nothing of it any more (the
// generation has passed, or the state was lost), and where Redis has lost
// writes: a batch that comes again, after its envelope was lost, would take the
// same units off the ledger twice.
func (s *State) settle(op Op) bool {
	if op.Lost {
		return false // what Redis forgot may have settled it before
	}
	back := s.generation() - op.Gen
	if back != 0 && back != 1 || op.View.Born != s.Born || op.Had > s.Out[back] || op.Keep > op.Had {
		return false
	}
	s.Out[back] -= op.Had
	s.Out[0] += op.Keep
	return true
}

// lease sizes a lease from free units; before is the level before the grants.
func (b Bucket) lease(s *State, op Op, ans *Answer, before, free int64, refused bool, now int64) {
	life := float64(b.ceiling(*s)-before) / float64(b.Refill)
	if life = math.Floor(math.Min(MaxLease, life)); life >= MinLease {
		ans.Life = int64(life)
	}
	if op.Div > 0 && op.Demand > 0 && !refused {
		part := math.Max(math.Floor(float64(free)/float64(op.Div)), math.Floor(b.quantum(s, op, now)))
		part = math.Min(part, float64(free))
		// What the process uses in a lease's life, less a standard deviation,
		// so that little expires.
		mu := float64(op.Demand) * float64(ans.Life) / 1e9
		lease := math.Min(part, math.Floor(mu-math.Sqrt(mu)))
		room := float64(b.Cap/b.Unit/2 - s.out())
		booked := math.Min(math.Min(part, room), math.Floor(float64(op.Demand)/1e3)-float64(op.Keep))
		if ans.Gen == 0 && (booked < 2 || op.Keep > 0) {
			booked = 0 // not worth a place in the ledger, or what is kept has none
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
