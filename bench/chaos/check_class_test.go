package main

import (
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// soundClasses returns the evidence of sound with two classes and 80 a second. In each client
// every fourth call is critical, and admitted, as is every other call of the rest. The fallbacks
// admitted 75 units, which are repaid when the fault is over: 55 more than the floor. So critical
// calls are promised again at about 4 s.
func soundClasses() *evidence {
	e := sound()
	e.back = 3 * second
	e.load.Classes = []hybrid.Class{{Name: "rest", Floor: 0.2}}
	critical := e.load.Streams[0]
	critical.Rate = 80
	rest := critical
	rest.Class = "rest"
	e.load.Streams = []stream{critical, rest}
	for _, w := range e.clients {
		n := 0
		for i := range w.history {
			if r := &w.history[i]; r.kind == recordDecision {
				if n%4 != 0 {
					r.stream = 1
				}
				n++
			}
		}
	}
	return e
}

// callAt returns the first decision of client 0 at or after a time, of one class, with a result.
func callAt(e *evidence, at int64, stream uint8, allowed bool) *record {
	for r := decisionAt(e, at); ; r = decisionAt(e, r.begin+1) {
		if r.stream == stream && r.allowed == allowed {
			return r
		}
	}
}

// refuse makes n calls of a class in client 0 be denied, from a time on.
func refuse(e *evidence, at int64, stream uint8, n int) {
	for range n {
		r := callAt(e, at, stream, true)
		credit(e, r, 0)
		r.allowed = false
	}
}

func TestSoundClassesPass(t *testing.T) {
	for name, plant := range map[string]func(e *evidence){
		"as it is": func(*evidence) {},
		"critical calls that are denied while units are repaid": func(e *evidence) { refuse(e, 2*second+second/4, 0, 5) },
		"a critical call that is denied after a stall":          func(e *evidence) { stall(e); refuse(e, second/2, 0, 1) },
		"the rest has less on a busy machine":                   func(e *evidence) { e.cpu = 0.9; refuse(e, 4*second, 1, 12) },
		"all that the theorem permits":                          func(e *evidence) { credit(e, callAt(e, 4*second+second/2, 1, true), 90) },
		"a share of the fallback":                               func(e *evidence) { credit(e, callAt(e, second, 0, true), 33) },
		"a free lease of each class":                            func(e *evidence) { deny(e, 2); waste(e, 2, 100, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			e := soundClasses()
			plant(e)
			v := check(e, true)
			for _, b := range v.Broken {
				t.Errorf("%s: %s", b.kind, b.text)
			}
			if r := v.Reserve; v.Shared.bound != 105 || r.calls < 60 || r.local < 30 || r.rate < 100 || r.again < second || r.again > 5*second/2 {
				t.Errorf("%+v, %+v", r, v.Shared)
			}
		})
	}
}

// stall lets the fallback of client 0 decide one call before the fault, as on a machine that starves Redis.
func stall(e *evidence) { callAt(e, second/2-second/50, 0, true).source = hybridlimit.SourceFallback }

// TestPlantedViolationsOfClassesAreFound checks that each promise about classes is found broken when
// it is broken by the smallest amount.
func TestPlantedViolationsOfClassesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		plant func(e *evidence)
	}{
		"a critical call that is denied before the outage": {brokeReserve, func(e *evidence) { refuse(e, second/2, 0, 1) }},
		"a critical call that is denied after the outage":  {brokeReserve, func(e *evidence) { refuse(e, 4*second+second/2, 0, 1) }},
		"a critical call that the fallback denies":         {brokeReserve, func(e *evidence) { refuse(e, second+second/2, 0, 1) }},
		"critical calls that are never promised again": {brokeReserve, func(e *evidence) {
			for i := range e.clients[1].history {
				if r := &e.clients[1].history[i]; r.kind == recordDecision && !r.allowed && r.begin > second {
					r.source = hybridlimit.SourceTimeout
				}
			}
		}},
		"units that the rest does not get": {brokeUse, func(e *evidence) { refuse(e, 4*second, 1, 12) }},
		"units that the rest does not get on a busy machine": {brokeUse, func(e *evidence) {
			e.cpu = 0.9
			for i := range e.load.Streams {
				e.load.Streams[i].Rate = 96
			}
		}},
		"a rest that is never denied":                                        {brokeUse, func(e *evidence) { admitAll(e) }},
		"more than N·C above the burst":                                      {brokeBound, func(e *evidence) { credit(e, callAt(e, 4*second+second/2, 1, true), 106) }},
		"a second share for the rest":                                        {brokeBound, func(e *evidence) { credit(e, callAt(e, second+second/2, 1, true), 36) }},
		"a count of processes, not classes":                                  {brokeBound, func(e *evidence) { e.moments[0].books[1].stats.Credit = 2 }},
		"a crash in an outage that takes more than C and its fallback along": {brokeAccounting, func(e *evidence) { crash(e, 3) }},
	} {
		t.Run(name, func(t *testing.T) {
			e := soundClasses()
			c.plant(e)
			found := false
			for _, b := range check(e, true).Broken {
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

// admitAll turns the denied calls of the rest into calls for no unit.
func admitAll(e *evidence) {
	for _, w := range e.clients {
		for i := range w.history {
			if r := &w.history[i]; r.kind == recordDecision {
				r.allowed = true
			}
		}
	}
}

// crash kills client 2 in the outage. Redis never learns of the units that its fallback admitted, and of n more.
func crash(e *evidence, n int64) {
	for i := range e.load.Streams {
		e.load.Streams[i].Rate = 55 // two clients use it
	}
	w := &e.clients[2]
	w.killed = true
	all := w.admitted()
	w.history = slices.DeleteFunc(w.history, func(r record) bool { return r.begin > second+second/2 })
	e.sums.debited -= all - w.admitted() + w.untold(e.hit, e.over) + n
	was := e.moments[0].books[2]
	for i := 1; i < len(e.moments); i++ {
		m := &e.moments[i]
		gone := m.books[2].admitted - was.admitted
		m.books[2] = was
		m.books[2].killed = true
		m.sums.debited -= gone
		m.keys["k0"] = account{m.keys["k0"].debited - gone, m.keys["k0"].admitted - gone, 0}
	}
}

// TestACrashInAnOutage checks that the units of the fallback of a killed client may be missing in
// Redis.
func TestACrashInAnOutage(t *testing.T) {
	e := soundClasses()
	crash(e, 2) // C is 1 in each class
	if v := check(e, true); len(v.Broken) > 0 || v.Accounting != "crash: -15 units of -15 to +50" {
		t.Errorf("%s: %+v", v.Accounting, v.Broken)
	}
}

// TestPromise checks the times at which critical calls are promised.
func TestPromise(t *testing.T) {
	at := func(ms int64) int64 { return int64(time.Second) + ms*int64(time.Millisecond) }
	p := promise{floor: 10, rate: 1e-8, share: 20, level: 10, away: map[int]float64{}} // 10 units a second
	for _, c := range []struct {
		ms       int64
		client   int
		critical bool
		source   hybridlimit.Source
		units    int32
		killed   bool
		want     bool
	}{
		{ms: 0, critical: true, source: hybridlimit.SourceLease, units: 9, want: true},
		{ms: 100, source: hybridlimit.SourceFallback, units: 30},
		{ms: 150, client: 1, source: hybridlimit.SourceTimeout},
		{ms: 200, client: 2, source: hybridlimit.SourceFallback, units: 5, killed: true},
		{ms: 5000, source: hybridlimit.SourceDenyCache},                       // back: a share of 20 is repaid
		{ms: 5500, critical: true, source: hybridlimit.SourceLease, units: 1}, // -10 + 5 - 1
		{ms: 7200, source: hybridlimit.SourceLease, units: 5},                 // full, but client 1 is not back
		{ms: 7300, client: 1, source: hybridlimit.SourceLease, units: 1, want: false},
		{ms: 7400, client: 1, source: hybridlimit.SourceLease, units: 1, want: true},
	} {
		r := record{source: c.source, units: c.units, begin: at(c.ms), allowed: c.units > 0}
		if got := p.next(call{r, c.client, c.critical}, c.killed); got != c.want {
			t.Errorf("at %d ms: %v, reserve %.1f", c.ms, got, p.level)
		}
	}
}

// TestKeysOfSeveralStreams checks the first stream and the demand of keys for which several streams call.
func TestKeysOfSeveralStreams(t *testing.T) {
	l := load{Streams: []stream{
		{Prefix: "a", Keys: 2, PerSecond: 10},
		{Prefix: "b", Keys: 1, PerSecond: 7},
		{Prefix: "a", Keys: 2, PerSecond: 100, Class: "rest"},
	}}
	for i, want := range []struct {
		first  uint8
		demand int64
	}{{0, 55}, {1, 7}, {0, 55}} {
		if first, demand := l.first(uint8(i)), l.demand(l.Streams[i]); first != want.first || demand != want.demand {
			t.Errorf("stream %d: %d, %d; want %d, %d", i, first, demand, want.first, want.demand)
		}
	}
}
