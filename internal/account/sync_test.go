package account

import (
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// A call that needs more units than are in hand waits for Redis. Meanwhile the process takes and renews no lease. Regression:
// with one unit leased, Redis had four of five units. It refused the fifth each time and leased the unit again. A caller that
// waited for RetryAfter was never admitted.
func TestACallThatNeedsAllHasNoLeaseRenewed(t *testing.T) {
	terms := stepTerms()
	terms.Credit = 0
	s := seen(terms, 4)
	s.leases[0], s.booked = lease{units: 1, end: 2 * sec, booked: true}, booking{gen: 3, had: 1}
	s.demand = demand{sum: 100, sq: 100, at: sec, first: -9 * sec}
	var ws Waiters
	p := NewPlan(terms.Limit)
	ws.Add(NewWaiter(5, p))
	ws.Front()
	op, _, ok := s.Send(terms, p, &ws, sec)
	if !ok || op.Demand != 0 || op.Keep != 0 || op.Gen != 0 || len(op.Asks) != 1 {
		t.Errorf("%v, %+v: want an ask alone", ok, op)
	}
	if s.Held() != 1 || s.LeaseEnds() != 2*sec || s.leases[0].booked {
		t.Errorf("%+v: the unit in hand ends as before, and is not renewed", s.leases)
	}
	if v := s.Call(terms, 1, sec); v.Reason != InHand || v.Source != hybridlimit.SourceLease {
		t.Errorf("%+v: it may be spent meanwhile", v)
	}
}
