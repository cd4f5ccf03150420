package account

import "github.com/hybridlimit/hybridlimit"

// This file is the part of the protocol that only queues have. A lease is a block of slots: a stretch of time in which the
// queue serves this process alone. Units that are taken are served in turn from the beginning of the block. The part of the
// block that passes before a call has taken it is lost. There is no credit: only Redis knows when a call is served.

// block is a lease of units slots from next on.
func block(units, next, each int64) lease {
	return lease{units: units, next: next, each: each, end: next + units*each}
}

// pass gives up the slots in which no call can be served any more, and returns how many. A unit takes a whole slot's time,
// before the block's end.
func (l *lease) pass(now int64) int64 {
	lost := l.passed(now)
	l.next = max(l.next, now)
	l.units -= lost
	return lost
}

// passed is how many slots pass would give up.
func (l *lease) passed(now int64) int64 {
	return l.units - min(l.units, max(0, l.end-max(l.next, now))/l.each)
}

// take takes n units that the block has, and returns in how many ns they are served.
func (l *lease) take(n, now int64) (delay int64) {
	l.next = max(l.next, now)
	delay = l.next - now
	l.next += n * l.each
	l.units -= n
	return delay
}

// slotted reports whether the units in hand are slots. The fast path cannot spend them, because each call is to be told when it
// is served.
func (a *Account) slotted() bool { return a.leases[0].units > 0 && a.leases[0].each > 0 }

// Slots reports whether the units in hand are slots, and when (ns) the next of them is served.
func (a *Account) Slots() (next int64, ok bool) { return a.leases[0].next, a.slotted() }

// AtOnce is how many of n units can be taken at once from the units in hand. The units of one call to a queue are served one
// after the other, so they come from one block.
func (a *Account) AtOnce(n int64) int64 {
	if !a.slotted() {
		return min(n, a.Held())
	}
	if l := a.leases[0].units; l < n {
		return min(n, max(l, a.leases[1].units))
	}
	return n
}

// hand takes n units that AtOnce has.
func (a *Account) hand(n, now int64) Verdict {
	v := Verdict{Action: Admit, Source: hybridlimit.SourceLease, Reason: InHand}
	if !a.slotted() {
		a.spend(n)
		return v
	}
	for i := range a.leases {
		if l := &a.leases[i]; l.units >= n {
			v.Delay = l.take(n, now)
			break
		}
	}
	a.close()
	return v
}

// settleQueue is settle for a queue. It returns in how many ns each waiting call is served, negative if it is not, and how many
// units were lost. Grants and lease are one block. It counts from when Redis answered: all processes of the fleet know that
// moment, but for the time that an answer takes at least.
func (a *Account) settleQueue(c *Conditions, ans Answer, waiting []int64, now int64) (delays []int64, lost int64) {
	a.learn(c, ans, now)
	got := block(ans.Granted+ans.Lease, ans.At+ans.Delay*1000, ans.each)
	delays = make([]int64, len(waiting))
	grants := ans.Granted
	for i, n := range waiting {
		switch {
		case i < ans.carried && n <= grants: // also where its slot has come meanwhile
			delays[i] = max(0, got.next-now)
			got.next, got.units, grants = got.next+n*ans.each, got.units-n, grants-n
		case got.units-got.passed(now) >= n:
			lost += got.pass(now)
			delays[i] = got.take(n, now)
		default:
			delays[i] = -1
		}
	}
	if lost += got.pass(now); got.units > 0 {
		lost += a.keep(got)
	}
	return delays, lost
}

// queued is how many ns the fallback keeps a call that it admits next.
func (a *Account) queued(c *Conditions, now int64) int64 {
	if !c.Bucket.Queue || c.Fallback.Policy == FallbackAllowAll || c.Fallback.PerNs <= 0 {
		return 0
	}
	a.StartFallback(c, now)
	a.local.refill(c.Fallback, now)
	return int64(max(0, c.Fallback.Cap-a.local.level) / c.Fallback.PerNs)
}
