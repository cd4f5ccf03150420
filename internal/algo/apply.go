package algo

import "math"

// Apply runs op on a bucket or queue at now and reports whether the state must be written. A state with Born 0 is a
// full, unused bucket.
func (b Bucket) Apply(s State, op Op, now int64) (State, Answer, bool) {
	written := s.Born != 0 && s.Kind == b.kind() // its birth is worth reporting
	wrote := s.Last                              // the last grant is not later
	changed := written && (s.Unit != b.Unit || s.Refill != b.Refill)
	s = b.load(s, now, op.Since)
	op.MaxDelay = max(op.MaxDelay, 0)
	if op.MaxDelay > 0 {
		op.Div = 0 // a caller that waits for units gets no lease
	}
	if b.Queue || op.MaxDelay > 0 {
		op.Gen, op.Back = 0, 0 // no ledger: granted units have a time of their own
	}
	low := b.low(op.Floor)
	dirty := op.Reset
	if op.Reset {
		s = State{Kind: s.Kind, Born: s.Born, Reset: max(now, s.Last), Unit: b.Unit, Refill: b.Refill, Level: b.Cap, Last: now, More: s.More}
	}
	dirty = changed && op.Since > 0 && len(op.Asks) > 0 || dirty // the new rate begins
	dirty = b.merge(&s, op, now) || dirty
	if op.Owed > 0 {
		s.Level, s.Since, dirty = b.debit(s.Level, op.Owed), s.Since+min(op.Owed, exact-s.Since), true
	}
	if dirty || !written {
		wrote = s.Last
	}
	// The ledger is settled before units are given back: units of a lease that were used and are given back are in it,
	// and the bucket has no room for them before.
	settled := op.Gen != 0 && b.settle(&s, op)
	s.Level = min(s.Level, b.ceiling(s))
	dirty = op.Refund > 0 && b.refund(&s, op, wrote) || dirty
	var ans Answer
	if settled {
		b.takeBack(&s, op)
		dirty = true
		if op.Keep > 0 {
			ans.Gen = s.number(0)
		}
	} else {
		ans.Refused = op.Back > 0
	}
	dirty = b.observe(&s, op.used(now)) || dirty

	before, frozen := s.Level, max(s.Last-now, 0)
	refused, patience := int64(0), int64(0)
	for _, n := range op.Asks {
		units, delay := b.grant(s.Level, n, frozen, op)
		if units > 0 {
			if s.Level -= units * b.Unit; op.MaxDelay > 0 && s.Level < 0 {
				s.Ahead = max(s.Ahead, s.Last+b.wait(-s.Level))
			}
			if ans.Granted == 0 {
				ans.Delay = delay
			}
			ans.Granted += units
		} else if n > 0 && refused == 0 {
			refused, patience = n, op.MaxDelay
			if op.Partial {
				refused = 1
			}
		}
	}
	switch {
	case op.MaxDelay > 0:
	case b.Queue:
		b.slots(&s, op, &ans, refused > 0, frozen, now)
	default:
		b.lease(&s, op, &ans, before, b.Units(s.Level-low), refused > 0, now)
	}
	s.Level -= ans.Lease * b.Unit
	if took := ans.Granted + ans.Lease; took > 0 {
		s.Since, dirty = s.Since+min(took, exact-s.Since), true
	}
	if s.out() == 0 {
		s.Span = 0
	}
	ans.Level, ans.Cap, ans.Refill = s.Level, b.ceiling(s), s.Span
	ans.Retry = b.retry(s.Level, max(refused, 1), frozen, patience, op)
	switch {
	case op.Div > 0 && op.Upper:
		ans.Retry = b.stayAway(s, op)
	case op.Div > 0:
		dirty = b.turn(&s, op, ans.Granted, refused, now) || dirty
		ans.Retry = max(s.Slot-now, 0)
	}
	if s.Slot <= s.Last {
		s.Slot = 0
	}
	if s.Keep-s.Last <= b.WaitFull(s.Level) {
		s.Keep = 0
	}
	if s.Ahead <= s.Last {
		s.Ahead = 0
	}
	if dirty || written {
		ans.Born = s.Born
	}
	s.Level -= b.kept()
	return s, ans, dirty
}

// kept returns the level that a State stores as 0: that of an empty bucket, or of a queue without content. So the
// stored value is the content of a queue, or the units left in a bucket, which a change of the limit keeps.
func (b Bucket) kept() int64 {
	if b.Queue {
		return b.Cap
	}
	return 0
}

// Load advances a state to now and converts it to this bucket, whose limit has been in force for longer than the state.
// Level is then the sub-units left, also of a queue.
func (b Bucket) Load(s State, now int64) State {
	s = b.load(s, now, 0)
	s.Level = min(s.Level, b.ceiling(s))
	return s
}

// load is Load for a limit that came into force since µs before now (0: long ago). Until then, the limit that wrote the
// state refills it. After the burst was lowered, Level may be above the ceiling: spent units are debited from it, and the
// ledger has them until the op has settled.
func (b Bucket) load(s State, now, since int64) State {
	if s.Born == 0 || s.Kind != b.kind() {
		return State{Kind: b.kind(), Unit: b.Unit, Refill: b.Refill, Level: b.Cap, Last: now, Born: now}
	}
	old := b.wrote(s)
	s.Level = old.clamp(float64(s.Level) + float64(old.kept()))
	if now-s.Last < -ClockSlack {
		s.Keep, s.Ahead, s.Last = max(s.Keep-s.Last+now, 0), max(s.Ahead-s.Last+now, 0), now
	}
	if old != b {
		if since > 0 {
			old.advance(&s, now-since)
		}
		s.Level -= old.kept()
		s.Level = b.clamp(b.scale(s.Level, s.Unit) + float64(b.kept()))
		s.Unit, s.Refill = b.Unit, b.Refill
	}
	b.advance(&s, now)
	return s
}

// advance refills up to a time. It does nothing for a time in the past.
func (b Bucket) advance(s *State, at int64) {
	if at <= s.Last {
		return
	}
	for s.out() > 0 && s.edge() <= at {
		b.refill(s, s.edge())
		s.Out = [2]int64{0, s.Out[0]} // older leases have expired
	}
	b.refill(s, at)
}

// wrote returns the bucket that wrote a state, with its rate and this bucket's burst. The state does not have the old
// burst. It is not needed: Redis drops a bucket that has been full for two seconds, and an unused bucket is full under
// any limit.
func (b Bucket) wrote(s State) Bucket {
	if s.Unit == b.Unit && s.Refill == b.Refill {
		return b
	}
	room := math.Min(float64(b.Cap/b.Unit)*float64(s.Unit), float64((exact-s.Refill)/2))
	return Bucket{Queue: b.Queue, Unit: s.Unit, Refill: s.Refill, Cap: int64(room)}
}

// refill advances the level to a time before which the ledger does not change.
func (b Bucket) refill(s *State, at int64) {
	if b.Cap = b.ceiling(*s); s.Level < b.Cap {
		s.Level = b.Fill(s.Level, at-s.Last)
	}
	s.Last = at
}

// merge repairs a state that was lost or rolled back since the sender's view: of the two histories it takes the one
// with more usage. Other processes only debit, so a state above a view with the same Born has lost a debit. (Or it had
// a Refund, which merge then takes back, on the safe side.) merge then sets a new Born, so that the views of the other
// processes correct the state too. It ignores less than a unit.
func (b Bucket) merge(s *State, op Op, now int64) bool {
	v := op.View
	if v.Born == 0 || v.At <= s.Reset {
		return false
	}
	// Each product has its own conversion: a fused one rounds differently from Lua.
	if v.Born != s.Born {
		seen := float64(v.Level) + float64(float64(max(now-v.At, 0))*float64(b.Refill)) - float64(float64(s.Since)*float64(b.Unit))
		if seen < float64(s.Level) {
			s.Level = int64(math.Max(seen, float64(-b.Cap)))
			return true
		}
	} else if op.Lost && v.At <= now {
		seen := float64(v.Level) + float64(float64(s.Last-v.At)*float64(b.Refill))
		if seen <= float64(s.Level-b.Unit) {
			s.Level, s.Born, s.Since = int64(math.Max(seen, float64(-b.Cap))), max(now, s.Born+1), 0
			return true
		}
	}
	return false
}

// debit takes n units, down to one burst of debt.
func (b Bucket) debit(level, n int64) int64 {
	if float64(n)*float64(b.Unit) >= float64(level+b.Cap) {
		return -b.Cap
	}
	return level - n*b.Unit
}

// observe lowers the level to the units that another party's count leaves, and reports whether it did. The units do not
// count as debited: a view of another process includes them if that process was told.
func (b Bucket) observe(s *State, used int64) bool {
	over := floorDiv(s.Level, b.Unit) + s.out() - (b.Cap/b.Unit - used)
	if used <= 0 || over <= 0 {
		return false
	}
	s.Level = b.debit(s.Level, over)
	return true
}

// refund gives units back and reports whether that changed the state. Units that a full bucket cannot take are dropped,
// since the refill has already returned them. For a cancelled booking, with RefundAt, units granted after it stay
// taken: otherwise a later booking and the returned units could be used at the same moment. wrote is not before the
// last grant. The rule is that of x/time/rate's Reservation.CancelAt.
func (b Bucket) refund(s *State, op Op, wrote int64) bool {
	level, since, n := s.Level, s.Since, op.Refund
	give := float64(n) * float64(b.Unit)
	switch {
	case op.RefundAt <= 0:
	case b.Queue: // units whose time has come are served
		passed := float64(max(0, s.Last-op.RefundAt))
		n = int64(math.Max(0, float64(n)-math.Floor(float64(passed*float64(b.Refill))/float64(b.Unit))))
		give = float64(n) * float64(b.Unit)
	default:
		if level < 0 {
			wrote = s.Last // the debt is that of later bookings
		}
		after := float64(float64(wrote-op.RefundAt)*float64(b.Refill)) - float64(min(level, 0))
		give = math.Max(0, give-math.Max(0, after))
		n = int64(give / float64(b.Unit))
	}
	room := float64(b.ceiling(*s) - level) // not negative, after Load and merge
	if give > 0 {
		b.keep(s)
	}
	s.Level, s.Since = level+int64(math.Max(math.Min(give, room), 0)), max(since-n, 0)
	return s.Level != level || s.Since != since
}

// keep is called before units come back to a loaded state. The bucket is full earlier then than by the views of the
// other processes. If Redis had forgotten it by the time at which one of them tells its view, merge would take the
// state for lost, and take the units again. No time after 2⁵³ µs, in 2255, is exact in Redis.
func (b Bucket) keep(s *State) { s.Keep = max(s.Keep, min(s.Last+b.WaitFull(s.Level), exact)) }

// TTL returns the ms for which a state must be kept: until the bucket is full, or, after units came back or a Reset,
// until the lowest view from before would be full. It adds the longest life of a lease, and the longest freeze after a
// clock stepped back.
func (b Bucket) TTL(s State) int64 {
	full := max(b.WaitFull(s.Level+b.kept()), s.Keep-s.Last)
	if s.Reset > 0 {
		full = max(full, s.Reset-s.Last+b.wait(2*b.Cap))
	}
	return (full+999)/1000 + (Generation<<s.Span+ClockSlack)/1000
}
