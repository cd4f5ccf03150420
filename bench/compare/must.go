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
func musts(levels []int) (all []must) {
	ratio := func(what, name, to, load string, g int, bound float64) {
		all = append(all, must{what, cell{name, load, g}, cell{to, load, g}, "ns/op", bound})
	}
	ratio("`Allow`, hot key, 1 goroutine / x/time/rate", ours, xtimeBare, hot, 1, 0.32)
	ratio("`Handle(key).Allow`, 1 goroutine / x/time/rate", handle, xtimeBare, hot, 1, 0.2)
	ratio("`Allow`, hot key, 64 goroutines / x/time/rate, 64", ours, xtimeBare, hot, 64, 0.6)
	ratio("`Allow`, hot key, denied, 1 goroutine / x/time/rate denied", ours, xtimeBare, denied, 1, 0.36)
	for _, g := range levels {
		ratio("`Allow`, Zipf, "+goroutines(g)+" / sync.Map of x/time/rate", ours, xtimeMap, zipf, g, 0.5)
		ratio("`Allow`, Zipf, "+goroutines(g)+" / sethvargo `Take`", ours, takes, zipf, g, 0.9)
	}
	ratio("`Allow`, uniform, 1 goroutine / sethvargo `Take`", ours, takes, uniform, 1, 1)
	ratio("`AllowAll` of two limits, hot key, 1 goroutine / `Allow`", both, ours, hot, 1, 15)
	ratio("`local`, hot key, 1 goroutine / golang-lru of x/time/rate", alone, xtimeLRU, hot, 1, 0.9)
	ratio("`local`, Zipf, 1 goroutine / golang-lru of x/time/rate", alone, xtimeLRU, zipf, 1, 1)
	ratio("`local`, uniform, 1 goroutine / sethvargo `Take`", alone, takes, uniform, 1, 1)
	ratio("`local`, unique keys, 1 goroutine / golang-lru of x/time/rate", alone, xtimeLRU, churn, 1, 1.2)
	return append(all,
		must{what: "allocations of a decision, hot key, `Allow`", a: cell{ours, hot, 1}, unit: "allocs/op"},
		must{what: "allocations of a decision, hot key, denied", a: cell{ours, denied, 1}, unit: "allocs/op"},
		must{what: "allocations of a decision, hot key, `Handle`", a: cell{handle, hot, 1}, unit: "allocs/op"},
		must{what: "allocations of a decision, hot key, `AllowAll`", a: cell{both, hot, 1}, unit: "allocs/op"},
	)
}

// mustTable compares the results with the promises.
func (p page) mustTable() string {
	var b strings.Builder
	b.WriteString("| requirement | at most | measured | in single rounds | by CPU time | holds |\n" +
		"|---|--:|--:|--:|--:|---|\n")
	row := func(what string, bound, got float64, digits int, rounds, cpu string) {
		verdict := "yes"
		if !benchkit.AtMost(bound).Holds(got) {
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
	for _, key := range []struct {
		what, name string
		bound      float64
	}{{"a key", ours, hybridKeyBytes}, {"a key of `local`", alone, localKeyBytes}} {
		if got, ok := p.results.key[key.name]; ok {
			row("bytes of memory for "+key.what+", of 1 000 000", key.bound, got, 0, "measured once", "-")
		}
	}
	return b.String()
}

func goroutines(n int) string {
	if n == 1 {
		return "1 goroutine"
	}
	return fmt.Sprintf("%d goroutines", n)
}
