package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/bench/rivals"
)

// page is the content of RESULTS.md.
type page struct {
	results results
	plan    plan
	machine machine
}

func (p page) markdown() string {
	var b strings.Builder
	b.WriteString("# Limiters side by side\n\n<!-- Printed by: make bench. Do not edit. -->\n\n")
	fmt.Fprintf(&b, "The time of a decision, for each limiter, under the same loads, in one run: `make bench`. "+
		"The cost for Redis is in [REDIS.md](REDIS.md).\n\nMachine: %v.\n\n", p.machine)
	fmt.Fprintf(&b, "Each load has %[1]d rounds, one load after the other. In each round every limiter has a turn. A turn has three parts:\n\n- %[2]v of warm-up.\n"+
		"- %[3]v that are timed as a whole: *ns/op* is wall time divided by the decisions of all goroutines together.\n"+
		"- %[4]v in which each decision is timed by itself: *p50* to *max*. These times include a reading of the clock (see *nothing*).\n\n"+
		"With many keys the parts take %[6]v, %[7]v and %[8]v, and with unique keys the second one %[9]v. Figures are medians of the rounds, with their 95 %% interval as in benchstat. p50, p99 and p99.9 are medians of the rounds as well. max is the maximum of all rounds. "+
		"Each limiter has its own process and, if it uses Redis, its own redis-server on the same machine, over loopback. So Redis is as near as possible, "+
		"and shares the processor cores with the limiter. The rounds are in [%[5]s/rounds.txt](%[5]s/rounds.txt): `benchstat -col /rival %[5]s/rounds.txt`.\n\n",
		p.plan.rounds, p.plan.slice.Warm, p.plan.slice.Timed, p.plan.slice.Single, resultsDir,
		warmTimes*p.plan.slice.Warm, manyTimes*p.plan.slice.Timed, manyTimes*p.plan.slice.Single, wholeCycles*manyTimes*p.plan.slice.Timed)
	b.WriteString("The machine is a guest on a shared host. Absolute figures drift by tens of percent within minutes, for all limiters alike. Read the ratios. " +
		"A ratio below 1.25 has no significance. " +
		"The CPU time of the process (cpu-ns/op in the rounds, and *by CPU time*) suffers less from neighbours than wall time. It includes the work in the background, but not redis-server.\n\n")
	b.WriteString(p.mustTable())
	for _, w := range p.plan.workloads {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", w.Title, w.About)
		b.WriteString(p.speeds(w))
		fmt.Fprintf(&b, "\n![%s](%s/%s.svg)\n\n", w.Title, resultsDir, w.Name)
		b.WriteString(p.latencies(w))
	}
	b.WriteString(p.memory())
	b.WriteString(p.who())
	return b.String()
}

// speeds returns the table of ns/op.
func (p page) speeds(w workload) string {
	var b strings.Builder
	b.WriteString("| limiter |")
	for _, g := range p.plan.goroutines {
		fmt.Fprintf(&b, " %s: ns/op | / hybrid | decisions/s |", goroutines(g))
	}
	b.WriteString(" allocs/op | denied | in memory |\n|---|" + strings.Repeat("--:|--:|--:|", len(p.plan.goroutines)) + "--:|--:|--:|\n")
	for _, r := range p.rows(w) {
		fmt.Fprintf(&b, "| %s |", strong(r.Name))
		for _, g := range p.plan.goroutines {
			c, best := cell{r.Name, w.Name, g}, cell{ours, w.Name, g}
			m, spread, _ := p.results.median(c, "ns/op")
			fmt.Fprintf(&b, " %s ± %s | %s | %s |", three(m), percent(spread), times(m/p.results.center(best, "ns/op"), r), three(p.results.center(c, "decisions/s")))
		}
		one := cell{r.Name, w.Name, p.plan.goroutines[0]}
		memory := "-"
		if m := p.results.center(one, "in-memory/op"); !math.IsNaN(m) {
			memory = fmt.Sprintf("%.2f %%", 100*m)
		}
		fmt.Fprintf(&b, " %s | %.1f %% | %s |\n", allocs(p.results.center(one, "allocs/op")), 100*p.results.center(one, "denied/op"), memory)
	}
	return b.String()
}

// latencies returns the table of single decisions.
func (p page) latencies(w workload) string {
	var b strings.Builder
	b.WriteString("| single decisions |")
	for _, g := range p.plan.goroutines {
		fmt.Fprintf(&b, " %s: p50 | p99 | p99.9 | max |", goroutines(g))
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|--:|--:|--:|", len(p.plan.goroutines)) + "\n")
	for _, r := range p.rows(w) {
		fmt.Fprintf(&b, "| %s |", strong(r.Name))
		for _, g := range p.plan.goroutines {
			c := cell{r.Name, w.Name, g}
			for _, unit := range []string{"p50-ns", "p99-ns", "p99.9-ns"} {
				fmt.Fprintf(&b, " %s |", duration(p.results.center(c, unit)))
			}
			fmt.Fprintf(&b, " %s |", duration(p.results.most(c, "max-ns")))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// memory returns the table of the memory of a key.
func (p page) memory() string {
	if len(p.results.key) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Memory\n\nBytes of heap for a key of 20 bytes, with its name, when there are a million keys (growth of HeapAlloc, "+
		"after garbage collection). hybrid is measured when nothing is owed and no lease is held.\n\n"+
		"| limiter | bytes a key |\n|---|--:|\n")
	rs := p.plan.rivals
	rs = slices.SortedStableFunc(slices.Values(rs), func(a, b rivals.Rival) int { return cmp.Compare(p.results.key[a.Name], p.results.key[b.Name]) })
	for _, r := range rs {
		if bytes, ok := p.results.key[r.Name]; ok {
			fmt.Fprintf(&b, "| %s | %.0f |\n", strong(r.Name), bytes)
		}
	}
	return b.String()
}

// who returns the table that describes each limiter.
func (p page) who() string {
	var b strings.Builder
	b.WriteString("\n## The limiters\n\n| limiter | the call | where it decides | module |\n|---|---|---|---|\n")
	for _, r := range p.plan.rivals {
		module := "this library"
		switch {
		case r.Name == nothing.Name:
			module = "the control"
		case r.Module != "":
			module = strings.TrimSpace(r.Module + " " + p.machine.versions[r.Module])
		}
		where := map[rivals.Where]string{rivals.InMemory: "memory", rivals.InRedis: "Redis", rivals.InBoth: "memory, shared through Redis"}[r.Where]
		if r.Single {
			where += "; one key"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strong(r.Name), r.What, where, module)
	}
	b.WriteString("\n*in memory*: the share of decisions by a lease, by credit, or by a denial that Redis has proved. *allocs/op*, *denied* and *in memory* are for one goroutine. " +
		"*/ hybrid*: the time divided by the time of hybrid's `Allow`, in bold if it is less.\n")
	return b.String()
}

// rows returns the rivals of a workload, the fastest first.
func (p page) rows(w workload) []rivals.Rival {
	var rs []rivals.Rival
	for _, r := range p.plan.rivals {
		if len(p.results.cells[cell{r.Name, w.Name, p.plan.goroutines[0]}]) > 0 {
			rs = append(rs, r)
		}
	}
	slices.SortStableFunc(rs, func(a, b rivals.Rival) int {
		return cmp.Compare(p.results.center(cell{a.Name, w.Name, p.plan.goroutines[0]}, "ns/op"),
			p.results.center(cell{b.Name, w.Name, p.plan.goroutines[0]}, "ns/op"))
	})
	return rs
}

// plain returns a name in the form for readers.
func plain(name string) string {
	if name == "redis_rate" {
		return name
	}
	return strings.Replace(strings.ReplaceAll(name, "_", " "), "x-time-rate", "x/time/rate", 1)
}

// strong returns the name for the page, in bold for limiters of this library.
func strong(name string) string {
	shown := plain(name)
	if slices.ContainsFunc(rivals.All, func(r rivals.Rival) bool { return r.Name == name && r.Module == "" }) {
		return "**" + shown + "**"
	}
	return shown
}

// times formats the ratio to the time of hybrid.
func times(x float64, r rivals.Rival) string {
	switch {
	case math.IsNaN(x) || r.Name == nothing.Name:
		return "-"
	case x < 1:
		return fmt.Sprintf("**%.2f**", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// three formats x with three significant digits.
func three(x float64) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case x >= 1e6:
		return three(x/1e6) + " M"
	case x >= 1e5:
		return three(x/1e3) + " k"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func percent(x float64) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return "∞"
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

func allocs(x float64) string {
	if x < 0.005 {
		return "0"
	}
	return fmt.Sprintf("%.2g", x)
}

// duration formats ns.
func duration(ns float64) string {
	switch {
	case math.IsNaN(ns):
		return "-"
	case ns < 1e3:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 1e6:
		return three(ns/1e3) + " µs"
	}
	return three(ns/1e6) + " ms"
}
