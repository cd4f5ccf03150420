package hybrid

import "github.com/hybridlimit/hybridlimit"

// This file is what queues have of their own. A lease is a block of slots: a
// stretch of time in which the queue serves this process alone. What is taken
// is served in turn from the block's beginning on, and the part of the block
// that passes before anybody has taken it is lost. There is no credit: when a
// call is served only Redis knows.

// block is a lease of units slots from next on.
func block(units, next, each int64) lease {
	return lease{units: units, next: next, each: each, end: next + units*each}
}

// pass gives up the slots that nobody can be served in any more, and returns
// how many. A unit takes a whole slot's time, before the block's end.
func (l *lease) pass(now int64) int64 {
	lost := l.passed(now)
	l.next = max(l.next, now)
	l.units -= lost
	return lost
}

// passed is how many pass would give up.
func (l *lease) passed(now int64) int64 {
	return l.units - min(l.units, max(0, l.end-max(l.next, now))/l.each)
}

// take takes n units that the block has, and returns in how many ns they are
// served.
func (l *lease) take(n, now int64) (delay int64) {
	l.next = max(l.next, now)
	delay = l.next - now
	l.next += n * l.each
	l.units -= n
	return delay
}

// slotted says whether what is in hand is slots: the common path cannot spend
// them, because each call is to be told when it is served.
func (s *state) slotted() bool { return s.leases[0].units > 0 && s.leases[0].each > 0 }

// atOnce is how many of n units can be taken from what is in hand at once:
// those of a call are served one after the other, so in one block.
func (s *state) atOnce(n int64) int64 {
	if !s.slotted() {
		return min(n, s.held())
	}
	if l := s.leases[0].units; l < n {
		return min(n, max(l, s.leases[1].units))
	}
	return n
}

// hand takes n units that are in hand at once.
func (s *state) hand(n, now int64) verdict {
	v := verdict{action: admit, source: hybridlimit.SourceLease}
	if !s.slotted() {
		s.spend(n)
		return v
	}
	for i := range s.leases {
		if l := &s.leases[i]; l.units >= n {
			v.delay = l.take(n, now)
			break
		}
	}
	s.close()
	return v
}

// settleSlots is settle for a queue. It returns in how many ns each of those
// who wait is served, negative if it is not, and how many units were lost.
// What was granted and what was leased is one block. It is counted from when
// Redis answered, as all of the fleet have it but for the time that an answer
// takes at least.
func (s *state) settleSlots(t *terms, a answer, waiting []int64, now int64) (delays []int64, lost int64) {
	s.learn(t, a, now)
	got := block(a.Granted+a.Lease, a.at+a.Delay*1000, a.each)
	delays = make([]int64, len(waiting))
	grants := a.Granted
	for i, n := range waiting {
		switch {
		case i < a.carried && n <= grants: // also where its slot has come meanwhile
			delays[i] = max(0, got.next-now)
			got.next, got.units, grants = got.next+n*a.each, got.units-n, grants-n
		case got.units-got.passed(now) >= n:
			lost += got.pass(now)
			delays[i] = got.take(n, now)
		default:
			delays[i] = -1
		}
	}
	if lost += got.pass(now); got.units > 0 {
		lost += s.keep(got)
	}
	return delays, lost
}

// queued is how many ns the fallback keeps what it admits next.
func (s *state) queued(t *terms, now int64) int64 {
	if !t.bucket.Queue || t.share.policy == FallbackAllowAll || t.share.perNs <= 0 {
		return 0
	}
	s.startShare(t, now)
	s.share.refill(t.share, now)
	return int64(max(0, t.share.cap-s.share.level) / t.share.perNs)
}
