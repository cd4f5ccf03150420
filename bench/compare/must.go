package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// must is a promise about the speed of this library.
type must struct {
	what  string
	a, b  cell // the figure of a; if b is set, divided by that of b
	unit  string
	bound float64
}

const (
	xtimeBare = "x-time-rate"
	xtimeMap  = "x-time-rate_sync.Map"
	xtimeLRU  = "x-time-rate_golang-lru"
	takes     = "sethvargo"
	ours      = "hybrid"
	handle    = "hybrid_Bucket"
	both      = "hybrid_AllowAll"
	alone     = "local"
)

// These are the most bytes of memory that a key may take in total.
const (
	hybridKeyBytes = 450
	localKeyBytes  = 260
)

// musts returns the promises.
func musts(levels []int) []must {
	out := []must{
		{"`Allow`, hot key, 1 goroutine / x/time/rate", cell{ours, hot, 1}, cell{xtimeBare, hot, 1}, "ns/op", 0.32},
		{"`Handle(key).Allow`, 1 goroutine / x/time/rate", cell{handle, hot, 1}, cell{xtimeBare, hot, 1}, "ns/op", 0.2},
		{"`Allow`, hot key, 64 goroutines / x/time/rate, 64", cell{ours, hot, 64}, cell{xtimeBare, hot, 64}, "ns/op", 0.6},
		{"`Allow`, hot key, denied, 1 goroutine / x/time/rate denied", cell{ours, denied, 1}, cell{xtimeBare, denied, 1}, "ns/op", 0.36},
	}
	for _, g := range levels {
		out = append(out,
			must{fmt.Sprintf("`Allow`, Zipf, %s / sync.Map of x/time/rate", goroutines(g)), cell{ours, zipf, g}, cell{xtimeMap, zipf, g}, "ns/op", 0.5},
			must{fmt.Sprintf("`Allow`, Zipf, %s / sethvargo `Take`", goroutines(g)), cell{ours, zipf, g}, cell{takes, zipf, g}, "ns/op", 0.9},
		)
	}
	out = append(
		out,
		must{"`Allow`, uniform, 1 goroutine / sethvargo `Take`", cell{ours, uniform, 1}, cell{takes, uniform, 1}, "ns/op", 1},
		must{"`AllowAll` of two limits, hot key, 1 goroutine / `Allow`", cell{both, hot, 1}, cell{ours, hot, 1}, "ns/op", 15},
		must{"`local`, hot key, 1 goroutine / golang-lru of x/time/rate", cell{alone, hot, 1}, cell{xtimeLRU, hot, 1}, "ns/op", 0.9},
		must{"`local`, Zipf, 1 goroutine / golang-lru of x/time/rate", cell{alone, zipf, 1}, cell{xtimeLRU, zipf, 1}, "ns/op", 1},
		must{"`local`, uniform, 1 goroutine / sethvargo `Take`", cell{alone, uniform, 1}, cell{takes, uniform, 1}, "ns/op", 1},
		must{"`local`, unique keys, 1 goroutine / golang-lru of x/time/rate", cell{alone, churn, 1}, cell{xtimeLRU, churn, 1}, "ns/op", 1.2},
	)
	for _, m := range []must{
		{what: "allocations of a decision, hot key, `Allow`", a: cell{ours, hot, 1}},
		{what: "allocations of a decision, hot key, denied", a: cell{ours, denied, 1}},
		{what: "allocations of a decision, hot key, `Handle`", a: cell{handle, hot, 1}},
		{what: "allocations of a decision, hot key, `AllowAll`", a: cell{both, hot, 1}},
	} {
		m.unit = "allocs/op"
		out = append(out, m)
	}
	return out
}

// mustTable compares the results with the promises.
func (p page) mustTable() string {
	var b strings.Builder
	b.WriteString("| requirement | at most | measured | in single rounds | by CPU time | holds |\n|---|--:|--:|--:|--:|---|\n")
	row := func(what string, bound, got float64, digits int, rounds, cpu string) {
		verdict := "yes"
		if !(benchkit.Bound{Value: bound, AtMost: true}).Holds(got) {
			verdict = "**no**"
		}
		fmt.Fprintf(&b, "| %s | %v | %.*f | %s | %s | %s |\n", what, bound, digits, got, rounds, cpu, verdict)
	}
	for _, m := range musts(p.plan.goroutines) {
		if m.b != (cell{}) {
			if got, lo, hi, ok := p.results.ratio(m.a, m.b, m.unit); ok {
				cpu, _, _, _ := p.results.ratio(m.a, m.b, "cpu-ns/op")
				row(m.what, m.bound, got, 2, fmt.Sprintf("%.2f to %.2f", lo, hi), fmt.Sprintf("%.2f", cpu))
			}
			continue
		}
		if got := p.results.center(m.a, m.unit); !math.IsNaN(got) {
			// Whole allocations, as in go test. The rest are allocations of syncs, a few hundred a second.
			row(m.what, m.bound, math.Floor(got), 0, fmt.Sprintf("%.6f with syncs", got), "-")
		}
	}
	for _, name := range []string{ours, handle, both} {
		// This checks that the fast path was measured.
		if got := p.results.center(cell{name, hot, 1}, "in-memory/op"); !math.IsNaN(got) {
			row(fmt.Sprintf("decisions of the hot key that were not by lease or credit, %s", plain(name)), 0.01, 1-got, 4, "-", "-")
		}
	}
	if got, ok := p.results.key[ours]; ok {
		row("bytes of memory for a key, of 1 000 000", hybridKeyBytes, got, 0, "measured once", "-")
	}
	if got, ok := p.results.key[alone]; ok {
		row("bytes of memory for a key of `local`, of 1 000 000", localKeyBytes, got, 0, "measured once", "-")
	}
	return b.String()
}

func goroutines(n int) string {
	if n == 1 {
		return "1 goroutine"
	}
	return fmt.Sprintf("%d goroutines", n)
}
