package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/bench/rivals"
)

// page is the content of RESULTS.md.
type page struct {
	results results
	plan    plan // of the results
}

// newPage returns the page of rounds in Go's benchmark format.
func newPage(raw []byte) (page, error) {
	res, err := parse(raw)
	p := plan{slice: res.slice}
	names, loads := map[string]bool{}, map[string]bool{}
	for c, row := range res.cells {
		names[c.rival], loads[c.load] = true, true
		p.rounds = max(p.rounds, len(row.Rounds))
		if !slices.Contains(p.goroutines, c.goroutines) {
			p.goroutines = append(p.goroutines, c.goroutines)
		}
	}
	slices.Sort(p.goroutines)
	p.rivals = slices.DeleteFunc(slices.Clone(everyone), func(r rivals.Rival) bool { return !names[r.Name] })
	p.workloads = slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return !loads[w.Name] })
	return page{results: res, plan: p}, err
}

func (p page) markdown() string {
	var b strings.Builder
	b.WriteString("# Limiters side by side\n\n<!-- Printed by: make bench. Do not edit. -->\n\n")
	fmt.Fprintf(&b, "The time of a decision, for each limiter, under the same loads, in one run of `make bench`. "+
		"[REDIS.md](REDIS.md) has the cost for Redis.\n\nMachine: %v.\n\n", p.results.machine)
	d := p.plan.slice
	fmt.Fprintf(&b, "The machine is a guest on a shared host. Absolute figures drift by tens of percent within minutes, "+
		"for all limiters alike. So read the ratios. A ratio below 1.25 has no significance.\n\n"+
		"| column | meaning |\n|---|---|\n"+
		"| ns/op ± %% | wall time divided by the decisions of all goroutines: the median of %d rounds, "+
		"and its 95 %% interval as in benchstat |\n"+
		"| / hybrid | the time divided by that of hybrid's `Allow`, in bold if it is less |\n"+
		"| p99 | of decisions that are timed one by one, with a reading of the clock (see *nothing*): "+
		"the median of the rounds |\n"+
		"| allocs/op, denied, in memory | of one goroutine; in memory: by a lease, by credit, "+
		"or by a denial that Redis has proved |\n"+
		"| by CPU time | of the process: it suffers less from neighbours, and has the work in the background, "+
		"but not redis-server |\n\n", p.plan.rounds)
	fmt.Fprintf(&b, "In each round of a load every limiter has a turn: a warm-up of %v, %v that are timed as a whole, "+
		"and %v of single decisions. With many keys these take %v, %v and %v, and with unique keys the second one %v. ",
		d.Warm, d.Timed, d.Single, warmTimes*d.Warm, manyTimes*d.Timed, manyTimes*d.Single, wholeCycles*manyTimes*d.Timed)
	fmt.Fprintf(&b, "Each limiter has its own process and, if it uses Redis, its own redis-server on the same machine, "+
		"over loopback. So Redis is as near as possible, and shares the processor cores with the limiter.\n\n"+
		"[%[1]s/rounds.txt](%[1]s/rounds.txt) has the rounds: `benchstat -col /rival %[1]s/rounds.txt`. "+
		"The pictures have p50, p99.9 and the maximum.\n\n", resultsDir)
	b.WriteString(p.mustTable())
	for _, w := range p.plan.workloads {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", w.Title, w.About)
		b.WriteString(p.speeds(w))
		fmt.Fprintf(&b, "\n![%s](%s/%s.svg)\n", w.Title, resultsDir, w.Name)
	}
	b.WriteString(p.memory())
	b.WriteString(p.who())
	return b.String()
}

// speeds returns the table of a load.
func (p page) speeds(w workload) string {
	var b strings.Builder
	b.WriteString("| limiter |")
	for _, g := range p.plan.goroutines {
		fmt.Fprintf(&b, " %s: ns/op ± %% | / hybrid | p99, µs |", goroutines(g))
	}
	figures := strings.Repeat("--:|", 3*len(p.plan.goroutines)+3)
	b.WriteString(" allocs/op | denied, % | in memory, % |\n|---|" + figures + "\n")
	for _, r := range p.rows(w) {
		fmt.Fprintf(&b, "| %s |", strong(r.Name))
		for _, g := range p.plan.goroutines {
			c, best := cell{r.Name, w.Name, g}, cell{ours, w.Name, g}
			m, spread := p.results.center(c, "ns/op"), p.results.spread(c, "ns/op")
			ratio := m / p.results.center(best, "ns/op")
			p99 := micros(p.results.center(c, "p99-ns"))
			fmt.Fprintf(&b, " %s ±%s | %s | %s |", three(m), percent(spread), times(ratio, r), p99)
		}
		one := cell{r.Name, w.Name, p.plan.goroutines[0]}
		memory := "-"
		if m := p.results.center(one, "in-memory/op"); !math.IsNaN(m) {
			memory = fmt.Sprintf("%.2f", 100*m)
		}
		mallocs, denied := p.results.center(one, "allocs/op"), p.results.center(one, "denied/op")
		fmt.Fprintf(&b, " %s | %.1f | %s |\n", allocs(mallocs), 100*denied, memory)
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
			module = strings.TrimSpace(r.Module + " " + p.results.modules[r.Module])
		}
		where := map[rivals.Where]string{rivals.InMemory: "memory", rivals.InRedis: "Redis", rivals.InBoth: "memory, shared through Redis"}[r.Where]
		if r.Single {
			where += "; one key"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strong(r.Name), r.What, where, module)
	}
	return b.String()
}

// rows returns the rivals of a workload, the fastest first.
func (p page) rows(w workload) []rivals.Rival {
	var rs []rivals.Rival
	for _, r := range p.plan.rivals {
		if p.results.cells[cell{r.Name, w.Name, p.plan.goroutines[0]}] != nil {
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

// percent formats a share in %.
func percent(x float64) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return "∞"
	}
	return fmt.Sprintf("%.0f", 100*x)
}

func allocs(x float64) string {
	if x < 0.005 {
		return "0"
	}
	return fmt.Sprintf("%.2g", x)
}

// micros formats ns as µs.
func micros(ns float64) string {
	if ns < 1e3 {
		return strconv.FormatFloat(math.RoundToEven(ns)/1e3, 'f', -1, 64)
	}
	return three(ns / 1e3)
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
