package main

import "testing"

// chosen returns the candidate of the decision record.
func chosen() candidate { return candidates()[2] }

// TestBound checks that no schedule has more calls in flight than permits. Calls that outlive a cut-off of their process are not
// counted. An eviction, and a failover that loses writes, can break the bound: the decision record has the counts.
func TestBound(t *testing.T) {
	for _, c := range []struct {
		design design
		fault  fault
	}{{members, noFault}, {members, wiped}, {members, stepped}, {renewals, noFault}, {renewals, wiped}} {
		if got := search(c.design, c.fault, "", 200); got.broke > 0 {
			t.Errorf("%s, %s: %d of %d schedules are above the permits, by %d at most; the first seed is %d", c.design, c.fault, got.broke, got.schedules, got.worst, got.first)
		} else if got.admitted < 10_000 {
			t.Errorf("%s, %s: only %d calls admitted", c.design, c.fault, got.admitted)
		}
	}
}

// TestMutants checks that the search finds each rule that is left out.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		found := false
		for seed := uint64(0); seed < 2000 && !found; seed++ {
			found = schedule(m.design, m.fault, m.rule, seed).excess > schedule(m.design, m.fault, "", seed).excess
		}
		if !found {
			t.Errorf("%s without %q: 2000 schedules with %s are not worse than with it", m.design, m.rule, m.fault)
		}
	}
}

// TestNeverMoreThanASortedSet checks rows of the table with few permits for a process. The two designs
// admit different calls by chance, so 2 % more are allowed.
func TestNeverMoreThanASortedSet(t *testing.T) {
	c := chosen()
	for _, l := range loads() {
		if float64(l.procs)*l.span > 12_000 || l.permits > 20 || l.keys > 1 && l.part > 0.5 { // the rest are rows of the command
			continue
		}
		t.Run(l.String(), func(t *testing.T) {
			f := measure(c.rules, l, 1)
			if f.ops > 1.02*f.set {
				t.Errorf("%.3f ops for an admission, a sorted set has %.3f", f.ops, f.set)
			}
			if f.most > l.permits {
				t.Errorf("%d calls in flight of %d", f.most, l.permits)
			}
		})
	}
}

// TestShareOfACentralSemaphore checks the loads near the limit with ten permits a process or more.
func TestShareOfACentralSemaphore(t *testing.T) {
	c := chosen()
	for _, l := range loads() {
		if l.part != 0.95 || l.permits < 1000 || l.procs == 10 && l.call < 1 || l.span > 1000 {
			continue
		}
		l.span = min(l.span, max(4, 8*l.call))
		if f := measure(c.rules, l, 1); f.share < 0.97 {
			t.Errorf("%s: %.3f of a central semaphore's admissions", l, f.share)
		}
	}
}

// TestKilledProcess checks the time until the permits of a killed process run other calls.
func TestKilledProcess(t *testing.T) {
	c := chosen()
	for seed := range uint64(20) {
		if d := freeAfter(c.rules, seed); d <= 0 || d > 3 {
			t.Errorf("seed %d: the permits are used again after %.2f s", seed, d)
		}
	}
}
