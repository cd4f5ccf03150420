package algo

import "math"

// A lease is units debited now and spent later. The bucket must not become full while leased units are unspent, or the
// fleet could spend both. There are two ways to prevent this.
//
// The ledger records the lease: its units lower the level to which the bucket refills. The ledger counts them until the
// end of the generation after their own, which is later than the end of the lease. A sync reports the spent units to
// the ledger. It renews the rest, or returns it to the bucket.
//
// A free lease has no record, so its units cannot be returned. It lives at most for the time in which the bucket fills
// up from its level before the lease: the level and all free leases together are at most the level before the oldest of
// them, plus the refill since. Leases are free only while processes take turns: such a lease is surely spent, and spent
// units would stay in the ledger and hold back the refill.
//
// Level, free leases and ledger together never exceed the bucket.

// A generation has a number, by which a process settles its units. It is the first second of the generation, of Redis
// time, plus spanUnit·Span. So numbers of different lengths are never equal. Lengths differ after a change of the limit,
// and between senders with different limits.
const spanUnit = 1 << 40 // above all seconds; the sum is exact in Lua

// number returns the number of the generation that began ago generations before that of Last.
func (s State) number(ago int64) int64 {
	return (s.Last/Generation>>s.Span-ago)<<s.Span + spanUnit*s.Span
}

// LeaseLife returns the life, in µs, of a lease in a generation of the ledger, by the generation's number.
func LeaseLife(generation int64) int64 { return Generation << min(generation/spanUnit, 3) }

// edge returns the start of the ledger's next generation.
func (s State) edge() int64 { return (s.Last/Generation>>s.Span + 1) << s.Span * Generation }

func (s State) out() int64 { return s.Out[0] + s.Out[1] }

// ceiling returns the level to which the bucket refills.
func (b Bucket) ceiling(s State) int64 {
	return int64(math.Max(0, float64(b.Cap)-float64(float64(s.out())*float64(b.Unit))))
}

// settle replaces the sender's units in the ledger by those that it still holds. takeBack then puts the units that it
// returns back into the bucket. Both happen, or neither. settle returns false if the ledger has no record of the units
// any more, because the generation has passed or the state was lost. It also returns false if Redis has lost writes: a
// batch that is sent again after its envelope was lost would take the same units off the ledger twice.
func (b Bucket) settle(s *State, op Op) bool {
	if op.Lost || op.Broken {
		return false // a lost write may have settled it before
	}
	age := 0
	if op.Gen != s.number(0) {
		age = 1
	}
	known := op.Gen == s.number(int64(age)) && op.View.Born == s.Born
	if !known || op.Had > s.Out[age] || op.Keep > op.Had || op.Back > op.Had-op.Keep {
		return false
	}
	s.Out[age] -= op.Had
	s.Out[0] += op.Keep
	return true
}

// takeBack puts the units that the sender returns back into the bucket, which has room for them, because the ledger has
// kept it.
func (b Bucket) takeBack(s *State, op Op) {
	give := float64(op.Back) * float64(b.Unit)
	if s.Ahead > s.Last {
		// The debt is that of bookings, whose time is fixed. If returned units paid it, a later call and a booking could
		// use the same units.
		give = math.Max(0, float64(give)+math.Min(0, float64(s.Level)))
	}
	if give > 0 {
		b.keep(s)
	}
	s.Level = int64(math.Min(float64(s.Level)+give, float64(b.ceiling(*s))))
	s.Since = max(s.Since-op.Back, 0)
}

// Life returns the longest life, in µs, of a lease: 1, 2 or 4 seconds, up to two fifths of the time in which the bucket
// fills up, and up to most seconds (0: 4). A process asks once for each lease, so a long life costs a hot key few ops.
func (b Bucket) Life(most int64) int64 {
	life, end := int64(Generation), int64(MaxLease)
	if most > 0 && most < MaxLease/Generation {
		end = most * Generation
	}
	for full := float64(b.Cap) / float64(b.Refill) / 5; !b.Queue && 2*life <= end && float64(life) <= full; {
		life *= 2
	}
	return life
}

// lease sizes a lease from the free units. before is the level before the grants.
func (b Bucket) lease(s *State, op Op, ans *Answer, before, free int64, refused bool, now int64) {
	longest := b.Life(op.MaxLife)
	life := math.Min(float64(longest), float64(b.ceiling(*s)-before)/float64(b.Refill))
	if life = math.Floor(life); life >= MinLease {
		ans.Life = int64(life)
	}
	if op.Div > 0 && op.Demand > 0 && !refused {
		part := math.Max(math.Floor(float64(free)/float64(op.Div)), math.Floor(b.quantum(op, b.horizon(longest), s.Slot-now)))
		part = math.Min(part, float64(free))
		booked := ans.Gen != 0 || op.Keep == 0 && (s.Slot <= now || op.Upper)
		// The demand of the process in the time in which the bucket fills up, less a standard deviation, so that few
		// units are left over.
		mu := float64(op.Demand) * float64(ans.Life) / 1e9
		lease := math.Min(part, math.Floor(mu-math.Sqrt(mu)))
		if booked {
			if free >= op.Div || ans.Gen != 0 { // not near empty
				lasts := int64(Generation)
				if op.Had > 0 { // the process spends leases
					lasts = longest
				}
				lease = math.Min(part, math.Floor(float64(op.Demand)*float64(lasts)/1e9)-float64(op.Keep))
			}
			lease = math.Max(0, math.Min(lease, float64(b.Cap/b.Unit/2-s.out())))
			if ans.Gen == 0 && lease < 2 {
				lease = 0 // a lease that is not spent costs another sync
			}
			if lease > 0 || ans.Gen != 0 {
				b.extend(s, longest)
				s.Out[0] += int64(lease)
				ans.Gen = s.number(0)
			}
		}
		ans.Lease = int64(math.Max(0, lease))
	}
	if ans.Gen != 0 {
		ans.Life = LeaseLife(ans.Gen)
	}
}

// extend makes the generations of the ledger at least as long as life. Units that are in it then stay longer, and can no
// longer be settled. Generations get shorter only while the ledger is empty: a shorter one would forget a lease that is
// out.
func (b Bucket) extend(s *State, life int64) {
	if s.out() == 0 {
		s.Span = 0
	}
	for Generation<<s.Span < life {
		s.Span++
	}
}
