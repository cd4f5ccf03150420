package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
)

const second = int64(time.Second)

// sound returns the evidence of a run without violations: three clients, one
// key with 100 a second and a burst of 100, a decision every 20 ms for five
// seconds, and a fault from 1 s to 2 s with the breaker open.
func sound() *evidence {
	e := &evidence{
		single: true,
		load:   load{Streams: []stream{{Prefix: "k", Keys: 1, PerSecond: 50, Rate: 100, Burst: 100}}},
		hit:    second,
		over:   2 * second,
	}
	for i := range 3 {
		w := witness{}
		for at := int64(i); at < 5*second; at += second / 50 {
			r := record{
				kind: recordDecision, allowed: at/(second/50)%2 == 0, source: hybridlimit.SourceLease, begin: at, took: time.Microsecond, warm: true,
				beside: time.Microsecond,
			}
			if at > second && at < 2*second {
				r.source = hybridlimit.SourceFallback
			}
			if r.allowed {
				r.units = 1
			}
			w.history = append(w.history, r)
		}
		w.history = append(w.history,
			record{kind: recordBreaker, key: uint16(breaker.Closed), units: int32(breaker.Open), begin: second},
			record{kind: recordBreaker, key: uint16(breaker.Open), units: int32(breaker.HalfOpen), begin: 2 * second},
			record{kind: recordBreaker, key: uint16(breaker.HalfOpen), units: int32(breaker.Closed), begin: 2*second + 1},
			record{kind: recordNap, begin: 0, took: time.Millisecond},
		)
		w.last.Stats.Admitted = w.admitted()
		w.last.Stats.Granted = w.admitted()
		w.last.Goroutines, w.last.Before = 5, 5
		e.sums.debited += w.admitted()
		e.clients = append(e.clients, w)
	}
	for i, name := range []string{quietBefore, quietBack, quietAfter, quietAtRest} {
		at := []int64{second, 3 * second, 4 * second, 5 * second}[i]
		m := moment{name: name, at: at, keys: map[string]account{}}
		if i > 0 {
			m.from = e.moments[i-1].at
		}
		units := int64(0)
		for _, w := range e.clients {
			st := standing{}
			for _, r := range w.history {
				if r.kind == recordDecision && r.begin <= at {
					st.admitted += int64(r.units)
				}
			}
			st.stats.Admitted, st.stats.Granted = st.admitted, st.admitted
			units += st.admitted
			m.books = append(m.books, st)
		}
		m.sums.debited = units
		m.keys["k0"] = account{debited: units, admitted: units}
		e.moments = append(e.moments, m)
	}
	return e
}

func TestSoundHistoryPasses(t *testing.T) {
	v := check(sound(), true)
	for _, b := range v.Broken {
		t.Errorf("%s: %s", b.kind, b.text)
	}
	if v.Decisions != 750 || v.Errors != 0 || v.Accounting != "to the unit" || v.P99 != time.Microsecond || v.Shared.bound != 104 {
		t.Errorf("%+v", v)
	}
}

// decisionAt returns the first decision of client 0 at or after a time.
func decisionAt(e *evidence, at int64) *record {
	for i := range e.clients[0].history {
		if r := &e.clients[0].history[i]; r.kind == recordDecision && r.begin >= at {
			return r
		}
	}
	panic("none")
}

// TestPlantedViolationsAreFound checks that each promise is found broken when
// it is broken by the smallest amount.
func TestPlantedViolationsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		plant func(e *evidence)
	}{
		"an error": {brokeErrors, func(e *evidence) { decisionAt(e, 0).failed = true }},
		"too much admitted at once": {brokeBound, func(e *evidence) {
			// Burst and credit permit 104 at once.
			credit(e, decisionAt(e, 4*second), 105)
		}},
		"too much admitted over a while": {brokeBound, func(e *evidence) {
			for at := 3 * second; at < 4*second; at += second / 50 {
				if r := decisionAt(e, at); r.allowed {
					credit(e, r, 10)
				}
			}
		}},
		"too much by fallbacks": {brokeBound, func(e *evidence) { credit(e, decisionAt(e, second+second/2), 104) }},
		"a lost unit":           {brokeAccounting, func(e *evidence) { e.sums.debited-- }},
		"a unit debited twice":  {brokeAccounting, func(e *evidence) { e.sums.debited++ }},
		"a unit that a client forgot": {brokeAccounting, func(e *evidence) {
			e.clients[1].last.Stats.Paid++
			e.sums.debited++
		}},
		"a grant that a limiter does not count": {brokeAccounting, func(e *evidence) {
			e.clients[1].last.Stats.Admitted--
			e.clients[1].last.Stats.Granted--
			e.sums.debited--
		}},
		"nothing settled":       {brokeAccounting, func(e *evidence) { e.clients[2].last.Unsettled = "units are owed" }},
		"a batch applied twice": {brokeTwice, func(e *evidence) { e.sums.twice = []string{"batch"} }},
		"a crash that takes more than C along": {brokeAccounting, func(e *evidence) {
			e.clients[2].killed = true
			e.sums.debited -= 3 // C is 2
		}},
		"a crash that wastes more than a lease": {brokeAccounting, func(e *evidence) {
			e.clients[2].killed = true
			e.sums.debited += 51 // half a burst is 50
		}},
		"a slow decision": {brokeLatency, func(e *evidence) { decisionAt(e, 3*second).took = maxWait + slack + time.Microsecond }},
		"a decision slower than the canary excuses": {brokeLatency, func(e *evidence) {
			r := decisionAt(e, 3*second)
			r.took = maxWait + slack + 10*time.Millisecond
			w := &e.clients[0]
			w.history = append(w.history, record{kind: recordNap, begin: r.begin, took: 10 * time.Millisecond}) // 9 ms of oversleep
		}},
		"slow while the breaker is open": {brokeOpen, func(e *evidence) {
			for at := second + 1; at < 2*second; at += second / 10 {
				decisionAt(e, at).took = 11 * time.Microsecond
			}
		}},
		"slower while the breaker is open than the canary excuses": {brokeOpen, func(e *evidence) {
			e.cpu = 1
			for i := range int64(20) { // of 147, of which one in a hundred may be slow
				r := decisionAt(e, second+1+i*second/20)
				if r.took = openP99 + 1; i < 4 {
					r.beside = openP99 + 1
				}
			}
		}},
		"no recovery": {brokeLiveness, func(e *evidence) {
			for i := range e.clients[0].history {
				if r := &e.clients[0].history[i]; r.kind == recordDecision && r.begin > e.over {
					r.source = hybridlimit.SourceFallback
				}
			}
		}},
		"a breaker that closes late": {brokeLiveness, func(e *evidence) {
			for i := range e.clients[0].history {
				if r := &e.clients[0].history[i]; r.kind == recordBreaker && r.begin > e.over {
					r.begin = e.over + int64(recovery) + 1
				}
			}
		}},
		"a breaker that stays open": {brokeLiveness, func(e *evidence) {
			e.clients[0].history = append(e.clients[0].history, record{
				kind: recordBreaker, key: uint16(breaker.Closed), units: int32(breaker.Open), begin: 3 * second,
			})
		}},
		"back, and gone again": {brokeLiveness, func(e *evidence) {
			for i := range e.clients[0].history {
				if r := &e.clients[0].history[i]; r.kind == recordDecision && r.begin > e.back {
					r.source = hybridlimit.SourceFallback
				}
			}
		}},
		"a leaked goroutine": {brokeGrowth, func(e *evidence) { e.clients[1].last.Goroutines++ }},
		"a heap that grew":   {brokeGrowth, func(e *evidence) { e.clients[1].last.Heap = heapGrowth + 1 }},
		"a heap that grows": {brokeGrowth, func(e *evidence) {
			for i := range uint64(40) {
				e.clients[1].heap = append(e.clients[1].heap, 1000+3*i)
			}
		}},
		"a key without a TTL": {brokeTTL, func(e *evidence) { e.eternal = []string{"hl:v2:{0}:chaos:k0"} }},
	} {
		t.Run(name, func(t *testing.T) {
			e := sound()
			c.plant(e)
			v := check(e, true)
			found := false
			for _, b := range v.Broken {
				found = found || b.kind == c.kind
				if b.kind != c.kind {
					t.Errorf("also found: %s: %s", b.kind, b.text)
				}
			}
			if !found {
				t.Errorf("not found: %s", c.kind)
			}
		})
	}
}

// credit raises the units of a decision, and updates the counts of the client
// and of Redis to match.
func credit(e *evidence, r *record, units int32) {
	more := int64(units - r.units)
	r.allowed, r.units = true, units
	w := &e.clients[0]
	w.last.Stats.Admitted += more
	w.last.Stats.Granted += more
	e.sums.debited += more
	for i := range e.moments {
		m := &e.moments[i]
		if r.begin > m.at {
			continue
		}
		st, a := &m.books[0], m.keys["k0"]
		st.admitted, st.stats.Admitted, st.stats.Granted = st.admitted+more, st.stats.Admitted+more, st.stats.Granted+more
		m.sums.debited += more
		m.keys["k0"] = account{a.debited + more, a.admitted + more, a.held}
	}
}

// TestOutagesCountByThemselves checks that the bound of fallbacks applies to
// each outage separately.
func TestOutagesCountByThemselves(t *testing.T) {
	e := sound()
	for _, at := range []int64{second + second/4, second + 3*second/4} {
		for r := decisionAt(e, at); ; r = decisionAt(e, r.begin+1) {
			if r.source == hybridlimit.SourceFallback && r.units > 0 {
				credit(e, r, 60)
				break
			}
		}
	}
	if v := check(e, true); len(v.Broken) != 1 || v.Broken[0].kind != brokeBound {
		t.Errorf("in one outage: %+v", v.Broken)
	}
	e.struck = []int64{second, second + second/2}
	if v := check(e, true); len(v.Broken) > 0 {
		t.Errorf("in two: %+v", v.Broken)
	}
}

// TestEvictionsCount checks that each loss of a key counts if Redis evicts, up to a Redis that keeps nothing, and that
// one loss counts otherwise.
func TestEvictionsCount(t *testing.T) {
	l := newLedger()
	l.apply(place{"server", 1}, nil, transaction{{"DEL", "hl:v2:{3}:chaos:k"}, {"UNLINK", "hl:v2:{3}:chaos:k", "hl:v2:{3}:@epoch"}})
	if lost := l.losses(); len(lost) != 1 || lost["k"] != 2 {
		t.Errorf("losses: %v", lost)
	}
	e := &evidence{hit: second, over: 2*second + second/2, allowed: evicts, lost: map[string]int{"twice": 2, "often": 50}}
	for key, want := range map[string]float64{"never": 1, "twice": 2, "often": 4} {
		if got := e.forgets(key, 3); got != want {
			t.Errorf("%s: %v seconds, want %v", key, got, want)
		}
	}
	if e.allowed = forgets; e.forgets("often", 3) != 1 {
		t.Errorf("without evictions: %v seconds", e.forgets("often", 3))
	}
}

// TestExcuses checks that delays of the machine do not count against the
// library.
func TestExcuses(t *testing.T) {
	e := sound()
	r := decisionAt(e, 3*second)
	r.took = time.Second
	w := &e.clients[0]
	w.history = append(w.history, record{kind: recordNap, begin: r.begin - 1, took: time.Second})
	if v := check(e, true); len(v.Broken) > 0 || v.Slowest > maxWait+slack {
		t.Errorf("%+v", v)
	}
	e = sound()
	e.cpu = 0.6 // the promises about time hold on a machine that is at least half idle
	decisionAt(e, 3*second).took = 900 * time.Millisecond
	for i := range int64(10) {
		r := decisionAt(e, second+1+i*second/10)
		if r.took = openP99 + 1; i < 5 {
			r.beside = openP99 + 1
		}
	}
	if v := check(e, true); len(v.Broken) > 0 {
		t.Errorf("%+v", v.Broken)
	}
	decisionAt(e, 3*second).took = anyWait + time.Microsecond
	if v := check(e, true); len(v.Broken) != 1 || v.Broken[0].kind != brokeLatency {
		t.Errorf("%+v", v.Broken)
	}
	decisionAt(e, 3*second).took = time.Microsecond
	again := record{kind: recordBreaker, key: uint16(breaker.Closed), units: int32(breaker.Open), begin: 3 * second}
	e.clients[0].history = append(e.clients[0].history, again)
	if v := check(e, true); len(v.Broken) > 0 {
		t.Errorf("%+v", v.Broken)
	}
	e.clients[0].killed = true // a crash may lose C, and waste a lease
	for _, units := range []int64{-2, 50} {
		e.sums.debited += units
		if v := check(e, true); len(v.Broken) > 0 || !strings.Contains(v.Accounting, "crash") {
			t.Errorf("%s: %+v", v.Accounting, v.Broken)
		}
	}
}
