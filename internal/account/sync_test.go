package account

import (
	"testing"
)

// A call that needs more units than are in hand waits for Redis. The units in hand go back with its op, so that Redis has all
// units. Regression: with one unit leased, Redis had four of five units. It refused the fifth each time and leased the unit
// again. A caller that waited for RetryAfter was never admitted.
func TestACallThatNeedsAllReturnsItsLease(t *testing.T) {
	terms := stepTerms()
	terms.Credit = 0
	s := seen(terms, 4)
	s.leases[0], s.booked = lease{units: 1, end: 2 * sec, booked: true}, booking{gen: 3, had: 1}
	s.spentAt = sec
	s.demand = demand{sum: 100, sq: 100, at: sec}
	var ws Waiters
	p := NewPlan(terms.Limit)
	ws.Add(NewWaiter(5, p))
	ws.Front()
	op, _, ok := s.Send(terms, p, &ws, sec)
	if !ok || op.Demand != 0 || op.Keep != 0 || op.Gen != 3 || op.Had != 1 || op.Back != 1 || len(op.Asks) != 1 {
		t.Errorf("%v, %+v: want an ask, and the unit in hand returned", ok, op)
	}
	if s.Held() != 0 || s.Leased() != 1 {
		t.Errorf("%+v: want the unit on its way back", s.leases)
	}
	if v := s.Call(terms, 1, sec); v.Action != Ask {
		t.Errorf("%+v: want a call to wait for the answer", v)
	}
}

// TestALeaseThatIsRenewedShrinksToTheDemand checks that a renewal keeps the units of the next second, and returns the
// rest.
func TestALeaseThatIsRenewedShrinksToTheDemand(t *testing.T) {
	for _, tc := range []struct {
		name       string
		perSecond  float64
		held, back int64
	}{
		{"more than a second's", 10, 50, 40},
		{"a part of a unit more", 9.5, 50, 40},
		{"just a second's", 10, 10, 0},
		{"less", 10, 4, 0},
		{"too little demand to lease for", 1, 5, 5},
	} {
		terms := stepTerms()
		s := seen(terms, 4)
		s.leases[0], s.booked = lease{units: tc.held, end: sec + terms.lookEarly(), booked: true}, booking{gen: 3, had: tc.held}
		s.spentAt, s.lookBy = sec, sec
		s.demand = demand{sum: tc.perSecond, sq: float32(tc.perSecond), at: sec}
		if back, due := s.surplus(terms, false, sec); back != tc.back || !due {
			t.Errorf("%s: %d units go back, due %t; want %d", tc.name, back, due, tc.back)
		}
		if back, due := s.surplus(terms, false, sec-1); back != 0 || due {
			t.Errorf("%s: before the time %d units go back, due %t", tc.name, back, due)
		}
	}
}
