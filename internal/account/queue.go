package account

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
)

// This file has the part of the protocol that only queues have. A lease is a block of slots: a period of time in which
// the queue serves this process alone. Calls take units in order from the beginning of the block. A part of the block
// that passes before a call takes it is lost. There is no credit: only Redis knows the time at which a call is served.

// block returns a lease of slots from next on.
func block(units, next, each int64) lease {
	return lease{units: units, next: next, each: each, end: next + units*each}
}

// pass drops the slots in which no call can be served any more, and returns their number. A unit needs the time of a
// whole slot before the end of the block.
func (l *lease) pass(now int64) int64 {
	lost := l.passed(now)
	l.next = max(l.next, now)
	l.units -= lost
	return lost
}

// passed returns the number of slots that pass would drop.
func (l *lease) passed(now int64) int64 {
	return l.units - min(l.units, max(0, l.end-max(l.next, now))/l.each)
}

// take takes n units from a block that has as many, and returns the ns until they are served.
func (l *lease) take(n, now int64) (delay int64) {
	l.next = max(l.next, now)
	delay = l.next - now
	l.next += n * l.each
	l.units -= n
	return delay
}

// slotted reports whether the held units are slots. The fast path cannot spend slots, because each call must be told
// the time at which it is served.
func (a *Account) slotted() bool { return a.leases[0].units > 0 && a.leases[0].each > 0 }

// Slots reports whether the held units are slots. next is the time (ns) at which the next one is served.
func (a *Account) Slots() (next int64, ok bool) { return a.leases[0].next, a.slotted() }

// AtOnce returns the number of units, up to n, that one call can take from the held units. In a queue, the units of one
// call are served one after the other, so they come from one block.
func (a *Account) AtOnce(n int64) int64 {
	if !a.slotted() {
		return min(n, a.Held())
	}
	if l := a.leases[0].units; l < n {
		return min(n, max(l, a.leases[1].units))
	}
	return n
}

// hand admits a call for n held units, which AtOnce has found.
func (a *Account) hand(n, now int64) Verdict {
	v := Verdict{Action: Admit, Source: hybridlimit.SourceLease, Reason: InHand}
	if !a.slotted() {
		a.use(n, now)
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

// settleQueue is settle for a queue. For each waiting call it returns the ns until the call is served; negative: not
// served. lost is the number of lost units. The grants and the lease are one block. The block counts from the time at
// which Redis answered. The processes of the fleet agree on that time, except for the shortest delay of an answer.
func (a *Account) settleQueue(c *Conditions, ans Answer, waiting []int64, now int64) (delays []int64, lost int64) {
	a.learn(c, ans, now)
	got := block(ans.Granted+ans.Lease, ans.At+ans.Delay*1000, ans.each)
	delays = make([]int64, len(waiting))
	grants := ans.Granted
	for i, n := range waiting {
		switch {
		case i < ans.carried && n <= grants: // even if the time of its slot has passed
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

// queued returns the ns by which the fallback delays the next call that it admits.
func (a *Account) queued(c *Conditions, now int64) int64 {
	f := &c.Fallback
	if !c.Bucket.Queue || f.Policy == fallback.PolicyAllowAll || f.PerNs <= 0 {
		return 0
	}
	return int64(max(0, float64(f.Burst)-f.Share.Left(f.Size, now)) / f.PerNs)
}
