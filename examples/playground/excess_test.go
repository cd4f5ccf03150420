package main

import (
	"testing"

	"pgregory.net/rapid"
)

// slowExcess is the definition: it tries all intervals.
func slowExcess(as []admission, from, to int, perCell float64) (worst float64) {
	for first := from; first < to; first++ {
		for last := first; last < to; last++ {
			units := 0.0
			for _, a := range as {
				if a.began >= first && a.ended <= last {
					units += float64(a.units)
				}
			}
			worst = max(worst, units-perCell*float64(last-first+1))
		}
	}
	return worst
}

func TestExcessIsTheWorstInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := float64(rapid.IntRange(1, 1000).Draw(t, "rate"))
		from := rapid.IntRange(0, 20).Draw(t, "from")
		const to = 60
		var as []admission
		for range rapid.IntRange(0, 30).Draw(t, "admissions") {
			ended := rapid.IntRange(0, to-1).Draw(t, "ended")
			as = append(as, admission{max(0, ended-rapid.IntRange(0, 9).Draw(t, "took")), ended, rapid.Int64Range(0, 50).Draw(t, "units")})
		}
		x := newExcess(rate, from)
		for c := from; c < to; c++ {
			var here []admission
			for _, a := range as {
				if a.ended == c {
					here = append(here, a)
				}
			}
			x.add(here)
		}
		want := slowExcess(as, from, to, rate*cellTime.Seconds())
		if diff := x.worst - want; diff > 1e-6 || diff < -1e-6 {
			t.Fatalf("%v, want %v, of %v from %d", x.worst, want, as, from)
		}
	})
}

// TestExcessRemembersOldStarts checks that the first start is still known after
// more cells than there are starts.
func TestExcessRemembersOldStarts(t *testing.T) {
	x := newExcess(100, 0) // one unit a cell
	for c := range 5 * straddle {
		x.add([]admission{{c, c, 2}})
	}
	if want := float64(5 * straddle); x.worst < want-1e-6 || x.worst > want+1e-6 {
		t.Errorf("%v, want %v", x.worst, want)
	}
}

// TestWatchCountsAllProcesses checks that the units of several processes in one
// cell are added, in any order, and that late reports count.
func TestWatchCountsAllProcesses(t *testing.T) {
	s := initial
	w := newWatch(s, 0)
	for range 4 {
		w.waiting.add(placed{shared: []admission{{3, 3, 200}}})
	}
	w.add(placed{naive: []admission{{3, 3, 700}}}, 10)
	w.add(placed{shared: []admission{{4, 5, 100}}}, 10) // its cell is already closed
	w.add(placed{}, 20)
	got := map[string]bound{}
	for _, b := range w.bounds() {
		got[b.Name] = b
	}
	// 900 units from cell 3 to cell 10, with 5 a cell.
	if b := got["shared"]; b.Measured != 900-8*5 || b.Verdict != "broken" {
		t.Errorf("%+v", b)
	}
	if b := got["naive"]; b.Measured != 700-5 || b.Verdict != "none" {
		t.Errorf("%+v", b)
	}
}

// TestBoundsWithoutMemory checks that there is no verdict after Redis has lost
// its memory, because the guarantee then does not apply.
func TestBoundsWithoutMemory(t *testing.T) {
	w := newWatch(initial, 0)
	w.lost = true
	w.add(placed{shared: []admission{{0, 0, 5000}}}, 2)
	if b := w.bounds()[0]; b.Verdict != "none" {
		t.Errorf("%+v", b)
	}
}
