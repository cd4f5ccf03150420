package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// table is the only table of figures.
const table = "call"

// results has the figures of all rounds, by load and server.
type results struct {
	benchkit.Results
	size    scale
	machine string
}

// describe describes the machine.
func describe() string {
	return fmt.Sprintf("%s, %d cores; %s; %s; %s on loopback. Load average before: %s",
		benchkit.CPU(), runtime.NumCPU(), benchkit.Kernel(), runtime.Version(), "redis-server "+benchkit.RedisServer(),
		benchkit.LoadAverage())
}

// goals returns the figures that must be reached.
func (r *results) goals() []benchkit.Must {
	hot, many := loads[0].name, loads[1].name
	ratio := func(load, what, figure string, most float64) benchkit.Must {
		return benchkit.Must{
			What: load + ": " + what + " / theirs", Bound: benchkit.AtMost(most),
			Table: table, Load: load, Name: ourName, To: theirName, Figure: figure,
		}
	}
	calls := benchkit.Must{
		What: hot + ": calls a second / theirs", Bound: benchkit.AtLeast(2.5),
		Table: table, Load: hot, Name: ourName, To: theirName, Figure: "perSecond",
	}
	return r.Got(
		calls,
		benchkit.Must{
			What: hot + ": server CPU of a call beyond the one that decides nothing, µs", Bound: benchkit.AtMost(6),
			Got: r.Row(table, hot, ourName).Median("process") - r.Row(table, hot, emptyName).Median("process"),
		},
		ratio(hot, "p99", "p99", 0.75), ratio(many, "p99", "p99", 0.75),
		ratio(hot, "Redis CPU of a call", "cpu", 0.01), ratio(many, "Redis CPU of a call", "cpu", 1),
	)
}

// page returns the page.
func (r *results) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The rate limit service for Envoy\n\nWritten by `make bench-rls` (`cd rls && go run ./bench -write "+
		"../bench/RLS.md`): do not edit.\n\n%s. The cores are shared, so trust ratios more than absolute figures. %s is %s.\n\n",
		r.machine, theirName, theirVersion)
	fmt.Fprintf(&b, "%d callers over %d connection share the %d cores with the servers and with Redis. Each caller has one "+
		"call at a time. The servers are called in turns, each for %v a round, after %v that does not count. Figures are "+
		"medians of %d rounds. CPU is user and system time. That of Redis includes what an idle redis-server takes, as in "+
		"the row of the server that decides nothing.\n\n",
		r.size.callers, r.size.conns, runtime.NumCPU(), r.size.lasts, r.size.warm, r.size.rounds)
	b.WriteString("| requirement | bound | measured | |\n|---|---|--:|---|\n")
	for _, g := range r.goals() {
		word := "reached"
		if !g.Reached() {
			word = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %v | %.3g | %s |\n", g.What, g.Bound, g.Got, word)
	}
	b.WriteByte('\n')
	two := benchkit.Verb("%.2f")
	benchkit.Table(&b, []string{"load", "server"}, []benchkit.Column{
		benchkit.Col("calls/s", "perSecond", benchkit.Whole), benchkit.Col("p50, ms", "p50", two),
		benchkit.Col("p99, ms", "p99", two), benchkit.Col("server CPU of a call, µs", "process", benchkit.Verb("%.1f")),
		benchkit.Col("Redis CPU of a call, µs", "cpu", benchkit.Verb("%.3g")),
	}, r.Rows, func(row *benchkit.Row) string { return row.Load + " | " + row.Name })
	return b.String()
}
