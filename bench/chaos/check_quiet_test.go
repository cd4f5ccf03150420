package main

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// from changes the books of client 0 and of Redis at moment i and at all later ones.
func (e *evidence) from(i int, f func(m *moment, st *standing)) {
	for ; i < len(e.moments); i++ {
		f(&e.moments[i], &e.moments[i].books[0])
	}
}

// waste makes Redis grant units to client 0 in the phase before moment i, which it then
// counts as expired or lost.
func waste(e *evidence, i int, expired, lost int64) {
	e.from(i, func(m *moment, st *standing) {
		st.stats.Granted += expired + lost
		st.stats.Expired += expired
		st.stats.Lost += lost
		m.sums.debited += expired + lost
		a := m.keys["k0"]
		a.debited += expired + lost
		m.keys["k0"] = a
	})
}

// outlive makes client 0 hold n units at moment 1, which Redis does not take back later.
func outlive(e *evidence, n int64) {
	e.from(1, func(m *moment, st *standing) {
		st.stats.Granted += n
		m.sums.debited += n
		a := m.keys["k0"]
		a.debited += n
		if m.name == quietBack {
			st.stats.Held += n
			a.held += n
		} else {
			st.stats.Lost += n
		}
		m.keys["k0"] = a
	})
}

// deny makes calls be denied by Redis in the phase before moment i.
func deny(e *evidence, i int) {
	r := decisionAt(e, e.moments[i].at-second/2)
	for r.allowed {
		r = decisionAt(e, r.begin+1)
	}
	r.source = hybridlimit.SourceRedis
}

// TestSettled checks that the books have more time on a busy machine, and not for ever.
func TestSettled(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		busy  float64
		want  bool
	}{
		{4 * time.Second, 0.2, false},
		{6 * time.Second, 0.2, true},
		{6 * time.Second, 0.99, false},
		{26 * time.Second, 0.99, true},
	} {
		if got := c.after > settles.on(c.busy); got != c.want {
			t.Errorf("after %v on a machine that is %v busy: %v", c.after, c.busy, got)
		}
	}
}

// turn makes Redis write a next poll of k0 in the phase before moment i.
func turn(e *evidence, i int) {
	for ; i < len(e.moments); i++ {
		e.moments[i].turns = map[string]int{"k0": 1}
	}
}

// syncOf adds a call to Redis to the history of client 0, in the phase before moment i.
func syncOf(e *evidence, i int, failed bool, took time.Duration) {
	w := &e.clients[0]
	w.history = append(w.history, record{kind: recordSync, failed: failed, begin: e.moments[i].at - second/2, took: took})
}

// TestPlantedLossesAreFound checks that each promise about quiet moments is found
// broken when it is broken by the smallest amount.
func TestPlantedLossesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		plant func(e *evidence)
	}{
		"a unit that only Redis knows, at one quiet moment": {brokeQuiet, func(e *evidence) { e.moments[1].sums.debited++ }},
		"a unit that only the clients know":                 {brokeQuiet, func(e *evidence) { e.moments[1].sums.debited-- }},
		"a unit of one key in the place of another's": {brokeQuiet, func(e *evidence) {
			e.moments[2].keys["k1"] = account{debited: 1}
		}},
		"a unit held without a debit": {brokeQuiet, func(e *evidence) {
			e.moments[2].books[1].stats.Held++
		}},
		"a unit that callers did not get": {brokeQuiet, func(e *evidence) {
			e.from(2, func(_ *moment, st *standing) { st.stats.Admitted++ })
		}},
		"a unit owed at a quiet moment": {brokeQuiet, func(e *evidence) {
			m := &e.moments[2]
			m.books[0].stats.Owed++
			m.books[0].stats.Granted--
			m.sums.debited--
			m.keys["k0"] = account{m.keys["k0"].debited - 1, m.keys["k0"].admitted - 1, 0}
		}},
		"more debited than the asks without an answer": {brokeQuiet, func(e *evidence) {
			ask(e, 2, 3)
			e.from(2, func(m *moment, _ *standing) { m.sums.debited += 4 })
		}},
		"a unit that expired":             {brokeLosses, func(e *evidence) { waste(e, 3, 1, 0) }},
		"a unit that was lost":            {brokeLosses, func(e *evidence) { waste(e, 2, 0, 1) }},
		"a unit that expired in a fault":  {brokeLosses, func(e *evidence) { waste(e, 1, 1, 0) }},
		"more than a free lease":          {brokeLosses, func(e *evidence) { deny(e, 2); waste(e, 2, 51, 0) }},
		"more than one without a denial":  {brokeLosses, func(e *evidence) { turn(e, 2); waste(e, 2, 51, 0) }},
		"a unit after an old next poll":   {brokeLosses, func(e *evidence) { turn(e, 1); waste(e, 2, 1, 0) }},
		"more forgiven than the fallback": {brokeLosses, func(e *evidence) { forgive(e, 1) }},
		"a unit that was dropped": {brokeLosses, func(e *evidence) {
			e.from(2, func(m *moment, st *standing) {
				st.stats.Dropped++
				st.stats.Granted--
				m.sums.debited--
				m.keys["k0"] = account{m.keys["k0"].debited - 1, m.keys["k0"].admitted - 1, 0}
			})
		}},
		"a lost unit after a failed sync of another client": {brokeLosses, func(e *evidence) {
			syncOf(e, 2, true, time.Millisecond)
			e.clients[0], e.clients[1] = e.clients[1], e.clients[0]
			waste(e, 2, 0, 1)
		}},
		"a lost unit long after a failed sync": {brokeLosses, func(e *evidence) {
			w := &e.clients[0]
			long := e.moments[3].from - int64(leaseLife) - second
			w.history = append(w.history, record{kind: recordSync, failed: true, begin: long, took: time.Millisecond})
			waste(e, 3, 0, 1)
		}},
		"more lost after a wipe than were held": {brokeLosses, func(e *evidence) { e.allowed.seconds = 1; outlive(e, 3); waste(e, 2, 0, 1) }},
		"units that were held, without a wipe":  {brokeLosses, func(e *evidence) { outlive(e, 1) }},
		"units that were held, long after a wipe": {brokeLosses, func(e *evidence) {
			e.allowed.seconds, e.moments[2].from = 1, e.over+int64(leaseLife)
			outlive(e, 1)
		}},
		"units in hand at rest": {brokeReturn, func(e *evidence) {
			m := &e.moments[3]
			m.books[0].stats.Held++
			m.books[0].stats.Granted++
			m.sums.debited++
			m.keys["k0"] = account{m.keys["k0"].debited + 1, m.keys["k0"].admitted, 1}
		}},
		"more lost than callers left":                {brokeLosses, func(e *evidence) { slow(e, 2); waste(e, 2, 0, 2) }},
		"lost leases of a key that is not contended": {brokeLosses, func(e *evidence) { syncOf(e, 2, false, stalled); waste(e, 2, 0, 1) }},
		"leases that come back late":                 {brokeReturn, func(e *evidence) { e.returned = leasesReturn + 1 }},
		"leases that come back late, busy machine":   {brokeReturn, func(e *evidence) { e.cpu, e.returned = 0.9, anyReturn+1 }},
	} {
		t.Run(name, func(t *testing.T) {
			e := sound()
			c.plant(e)
			found := 0
			for _, b := range check(e, true).Broken {
				if b.kind == c.kind {
					found++
				} else if c.kind == brokeQuiet || b.kind != brokeQuiet { // units that are lost show in the books of the key as well
					t.Errorf("also found: %s: %s", b.kind, b.text)
				}
			}
			if found == 0 {
				t.Errorf("not found: %s", c.kind)
			}
		})
	}
}

// forgive makes client 0 forgive n units more than its fallback admitted in the phase
// before moment 2.
func forgive(e *evidence, n int64) {
	e.from(2, func(m *moment, st *standing) {
		st.stats.Forgiven += n
		st.stats.Granted -= n
		m.sums.debited -= n
	})
	e.from(2, func(m *moment, _ *standing) {
		a := m.keys["k0"]
		m.keys["k0"] = account{a.debited - n, a.admitted, a.held}
	})
}

// TestReasonsExcuseLosses checks that units may be lost for a reason that is in the
// evidence, and that the reason has its counter.
func TestReasonsExcuseLosses(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(e *evidence)
		want  losses
	}{
		"a failed sync": {func(e *evidence) { syncOf(e, 2, true, 1); waste(e, 2, 3, 2) }, losses{Expired: 3, Lost: 2}},
		"a late sync":   {func(e *evidence) { syncOf(e, 2, false, stalled+1); waste(e, 2, 3, 2) }, losses{Expired: 3, Lost: 2}},
		"asks without an answer": {func(e *evidence) {
			syncOf(e, 2, true, 1)
			ask(e, 2, 3)
			e.from(2, func(m *moment, _ *standing) { m.sums.debited += 3; e.sums.debited = m.sums.debited })
		}, losses{}},
		"a wiped Redis":                {func(e *evidence) { e.allowed.seconds = 1; waste(e, 1, 3, 2) }, losses{Expired: 3, Lost: 2}},
		"a clock that steps":           {func(e *evidence) { e.allowed.steps = true; waste(e, 1, 3, 2) }, losses{Expired: 3, Lost: 2}},
		"units older than a wipe":      {func(e *evidence) { e.allowed.seconds = 1; outlive(e, 3) }, losses{Lost: 3}},
		"units that come again":        {func(e *evidence) { e.from(2, func(_ *moment, st *standing) { st.stats.Resynced++ }); waste(e, 2, 1, 0) }, losses{Expired: 1}},
		"a frozen client":              {func(e *evidence) { freeze(e, 2); waste(e, 2, 3, 0) }, losses{Expired: 3}},
		"a unit kept for a caller":     {func(e *evidence) { slow(e, 2); waste(e, 2, 1, 0) }, losses{Expired: 1}},
		"a sync that failed before":    {func(e *evidence) { syncOf(e, 1, true, 1); waste(e, 2, 1, 0) }, losses{Expired: 1}},
		"a caller that left":           {func(e *evidence) { slow(e, 2); waste(e, 2, 0, 1) }, losses{Lost: 1}},
		"a free lease that comes late": {func(e *evidence) { deny(e, 2); syncOf(e, 2, false, lateLease+1); waste(e, 2, 0, 50) }, losses{Lost: 50}},
		"a free lease":                 {func(e *evidence) { deny(e, 2); waste(e, 2, 50, 0) }, losses{Free: 50}},
		"one without a denial":         {func(e *evidence) { turn(e, 2); waste(e, 2, 50, 0) }, losses{Free: 50}},
		"units of the fallback": {func(e *evidence) {
			e.from(2, func(_ *moment, st *standing) { st.alone += 7 })
			deny(e, 2)
			syncOf(e, 2, true, 1)
			forgive(e, 7)
		}, losses{Forgiven: 7}},
		"a batch that is refused": {func(e *evidence) {
			e.from(1, func(_ *moment, st *standing) { st.hub.Refused++ })
			syncOf(e, 1, true, 1)
			e.from(1, func(m *moment, st *standing) {
				st.stats.Dropped++
				st.stats.Granted--
				m.sums.debited--
				a := m.keys["k0"]
				m.keys["k0"] = account{a.debited - 1, a.admitted, a.held}
			})
		}, losses{Dropped: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			e := sound()
			c.plant(e)
			v := check(e, true)
			for _, b := range v.Broken {
				t.Errorf("%s: %s", b.kind, b.text)
			}
			if v.Losses != c.want {
				t.Errorf("%+v, want %+v", v.Losses, c.want)
			}
		})
	}
}

// ask makes client 0 ask for n units, without an answer, in the phase before moment i.
func ask(e *evidence, i int, n int64) {
	e.from(i, func(_ *moment, st *standing) { st.stats.Uncertain += n })
	e.clients[0].last.Stats.Uncertain += n
}

// freeze adds an oversleep to the canary of client 0, in the phase before moment i.
func freeze(e *evidence, i int) {
	w := &e.clients[0]
	w.history = append(w.history, record{kind: recordNap, begin: e.moments[i].at - second/2, took: stalled + 1})
}

// slow makes a call of client 0 wait in vain, in the phase before moment i.
func slow(e *evidence, i int) { decisionAt(e, e.moments[i].at-second/2).took = maxWait }

// TestAKilledClientTakesItsUnits checks that the units of a killed client do not count
// in the phase in which it was killed, and that its survivors are still checked.
func TestAKilledClientTakesItsUnits(t *testing.T) {
	killed := func() *evidence {
		e := sound()
		e.clients[2].killed = true
		for i := 1; i < len(e.moments); i++ {
			e.moments[i].books[2].killed = true
			e.moments[i].sums.debited += 20 // it held them
			a := e.moments[i].keys["k0"]
			a.debited += 20
			e.moments[i].keys["k0"] = a
			if i > 1 { // only the survivors admit
				m, was := &e.moments[i], e.moments[1].books[2].admitted
				more := m.books[2].admitted - was
				m.books[2].admitted, m.sums.debited = was, m.sums.debited-more
				m.keys["k0"] = account{m.keys["k0"].debited - more, m.keys["k0"].admitted - more, 0}
			}
		}
		return e
	}
	only := func(e *evidence) (kinds []string) {
		for _, b := range check(e, true).Broken {
			if b.kind != brokeAccounting && b.kind != brokeTwice { // the history goes on, which does not matter here
				kinds = append(kinds, b.kind)
			}
		}
		return kinds
	}
	if found := only(killed()); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	e := killed()
	e.moments[2].sums.debited++
	if found := only(e); len(found) == 0 {
		t.Error("a unit too many after the kill was not found")
	}
}
