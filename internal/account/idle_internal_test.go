package account

import "testing"

// idling returns terms and an account of a process that has spent all but held of the ten units that the ledger holds, at 1 s. By
// its view, the bucket of 100 has filled up to the ledger at 1.5 s.
func idling(held int64) (*Conditions, Account) {
	terms := stepTerms()
	terms.Limit.Rate, terms.Limit.Burst, terms.Interval = 100, 100, 50*ms
	terms.Bucket.Cap *= 10
	terms.Bucket.Refill *= 10
	s := seen(terms, 40)
	s.view.cap = 90 * terms.Bucket.Unit
	if s.booked = (booking{gen: 1, had: 10}); held > 0 {
		s.leases[0] = lease{units: held, end: 2 * sec, booked: true}
	}
	s.demand, s.spentAt = demand{sum: 20, sq: 20, at: sec}, sec
	s.watch(terms, 0, false, sec)
	return terms, s
}

// TestIdleProcessTellsWhatItSpent looks at leases when the ledger begins to keep the bucket from filling up. Looks before take the
// budget back, so that the last one knows whether units were spent.
func TestIdleProcessTellsWhatItSpent(t *testing.T) {
	const full = sec + 500*ms - 2*ms - 2*int64(tick)
	for held, first := range map[int64]int64{0: full - 50*ms, 4: sec + 25*ms} {
		terms, s := idling(held)
		now := int64(sec)
		for _, at := range []int64{first, full} {
			if got := s.LookAt(terms, now); got != at {
				t.Errorf("%d held: a look is at %d ms, want %d", held, got/ms, at/ms)
			}
			now = at
			s.Begin(0, at)
			op, ok := s.freeze(terms, nil, at)
			if ok != (at == full) {
				t.Errorf("%d held: the look at %d ms sends %t, %+v", held, at/ms, ok, op)
			}
			if ok && (op.Gen != 1 || op.Had != 10 || op.Keep != 0 || op.Back != held || op.Demand != 0 || op.Div != 0) {
				t.Errorf("%d held: the op is %+v", held, op)
			}
		}
	}
}

// TestBusyProcessTellsNothingEarly has looks after which the process uses the key, or has too little to tell.
func TestBusyProcessTellsNothingEarly(t *testing.T) {
	const full = sec + 500*ms
	for name, alter := range map[string]func(*Account, *Conditions){
		"used just now":         func(s *Account, _ *Conditions) { s.spentAt = full - 20*ms },
		"paused for two calls":  func(s *Account, _ *Conditions) { s.spentAt = full - 100*ms },
		"nothing is spent":      func(s *Account, _ *Conditions) { s.booked.had = 4 },
		"too little is spent":   func(s *Account, c *Conditions) { c.Limit.Burst, s.booked.had = 1000, 5 },
		"a sync is on its way":  func(s *Account, _ *Conditions) { s.frozen = true },
		"the bucket fills up":   func(s *Account, _ *Conditions) { s.lookBy = full + ms },
		"more demand than that": func(s *Account, _ *Conditions) { s.spentAt, s.demand.sum = full-90*ms, 40 },
	} {
		terms, s := idling(4)
		s.demand.at = full
		alter(&s, terms)
		s.Begin(0, full)
		if s.tellsSpent(terms, full) {
			t.Errorf("%s: it tells", name)
		}
		if s.frozen || name == "the bucket fills up" {
			continue
		}
		if op, ok := s.freeze(terms, nil, full); ok {
			t.Errorf("%s: the look sends %+v", name, op)
		}
		if s.lookBy < full+lookSoonest {
			t.Errorf("%s: the next look is %d ms later", name, (s.lookBy-full)/ms)
		}
	}
}

// TestLooksAtABusyKeyAreFew counts the looks at a key that is used all the time: the time between them doubles, up to half a second.
func TestLooksAtABusyKeyAreFew(t *testing.T) {
	terms, s := idling(4)
	s.leases[0].end = 9 * sec
	looks := 0
	for now := int64(sec); ; looks++ {
		at := s.LookAt(terms, now)
		if now = at; now == 0 || now > 3*sec {
			break
		}
		s.view.received = max(s.view.received, now-2*sec+ms) // the ledger remembers
		s.spentAt = now
		s.Begin(0, now)
		if _, ok := s.freeze(terms, nil, now); ok {
			t.Fatalf("look %d sends", looks)
		}
	}
	if looks == 0 || looks > 8 {
		t.Errorf("%d looks in two seconds, want 1 to 8", looks)
	}
}

// TestGroupsAreNoLastingDemand compares calls that come at once with as many that come one by one.
func TestGroupsAreNoLastingDemand(t *testing.T) {
	for _, tc := range []struct {
		name         string
		calls, group int
		least, most  float64 // of steady
	}{
		{"25 at once", 25, 25, 0, 0},
		{"one by one", 25, 1, 1, 1},
		{"three at once", 3, 3, 0, 0},
		{"two times ten", 20, 10, 0, 0.01},
		{"a hundred groups of ten", 1000, 10, 1, 1},
		{"ten groups of ten", 100, 10, 0.05, 0.15},
	} {
		var d demand
		now := sec
		for i := range tc.calls {
			if i > 0 && i%tc.group == 0 {
				now += 6 * ms
			}
			d.note(1, now)
		}
		if steady, lasting := d.steady(now), d.lasting(now); lasting < tc.least*steady || lasting > tc.most*steady {
			t.Errorf("%s: %.2f of %.2f a second last, want %g to %g of it", tc.name, lasting, steady, tc.least, tc.most)
		}
	}
}
