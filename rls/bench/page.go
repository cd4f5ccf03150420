package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// results has the figures of all rounds.
type results struct {
	size    scale
	machine string
	rows    []*row
}

// row has the figures of one server under one load.
type row struct {
	load, server string
	rounds       []figures
}

func (r *results) add(l load, server string, f figures) {
	have := r.row(l.name, server)
	if have == nil {
		have = &row{load: l.name, server: server}
		r.rows = append(r.rows, have)
	}
	have.rounds = append(have.rounds, f)
}

func (r *results) row(load, server string) *row {
	if i := slices.IndexFunc(r.rows, func(have *row) bool { return have.load == load && have.server == server }); i >= 0 {
		return r.rows[i]
	}
	return nil
}

// median returns the median of a figure over the rounds.
func (r *row) median(of func(figures) float64) float64 {
	all := make([]float64, len(r.rounds))
	for i, f := range r.rounds {
		all[i] = of(f)
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// describe describes the machine.
func describe() string {
	return fmt.Sprintf("%s, %d cores; %s; %s; %s on loopback. Load average before: %s",
		benchkit.CPU(), runtime.NumCPU(), benchkit.Kernel(), runtime.Version(), "redis-server "+benchkit.RedisServer(), benchkit.LoadAverage())
}

// goal is a figure that must be reached.
type goal struct {
	what, want string
	got        float64
	bound      benchkit.Bound
}

func (r *results) goals() []goal {
	hot, many := loads[0].name, loads[1].name
	server := func(f figures) float64 { return f.server }
	redis := func(f figures) float64 { return f.redis }
	p99 := func(f figures) float64 { return f.p99 }
	of := func(load, name string, figure func(figures) float64) float64 { return r.row(load, name).median(figure) }
	atMost := func(v float64) benchkit.Bound { return benchkit.Bound{Value: v, AtMost: true} }
	return []goal{
		{
			what: hot + ": server CPU of a call beyond the one that decides nothing, µs", want: "≤ 6", bound: atMost(6),
			got: of(hot, ourName, server) - of(hot, emptyName, server),
		},
		{what: hot + ": p99 / theirs", want: "≤ 0.75", bound: atMost(0.75), got: of(hot, ourName, p99) / of(hot, theirName, p99)},
		{what: many + ": p99 / theirs", want: "≤ 0.75", bound: atMost(0.75), got: of(many, ourName, p99) / of(many, theirName, p99)},
		{what: hot + ": Redis CPU of a call / theirs", want: "≤ 0.01", bound: atMost(0.01), got: of(hot, ourName, redis) / of(hot, theirName, redis)},
		{what: many + ": Redis CPU of a call / theirs", want: "≤ 1", bound: atMost(1), got: of(many, ourName, redis) / of(many, theirName, redis)},
	}
}

// missed returns an error with the goals that are missed.
func (r *results) missed() error {
	var errs []error
	for _, g := range r.goals() {
		if !g.bound.Holds(g.got) {
			errs = append(errs, fmt.Errorf("missed: %s: %.3g, must be %s", g.what, g.got, g.want))
		}
	}
	return errors.Join(errs...)
}

// page returns the page.
func (r *results) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The rate limit service for Envoy\n\nWritten by `make bench-rls` (`cd rls && go run ./bench -write ../bench/RLS.md`): do not edit.\n\n%s. The cores are shared, so trust ratios more than absolute figures. %s is %s.\n\n", r.machine, theirName, theirVersion)
	fmt.Fprintf(&b, "%d callers over %d connection share the %d cores with the servers and with Redis. Each caller has one call at a time. The servers are called in turns, each for %v a round, after %v that does not count. Figures are medians of %d rounds. CPU is user and system time. That of Redis includes what an idle redis-server takes, as in the row of the server that decides nothing.\n\n", r.size.callers, r.size.conns, runtime.NumCPU(), r.size.lasts, r.size.warm, r.size.rounds)
	b.WriteString("| requirement | bound | measured | |\n|---|---|--:|---|\n")
	for _, g := range r.goals() {
		word := "reached"
		if !g.bound.Holds(g.got) {
			word = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %.3g | %s |\n", g.what, g.want, g.got, word)
	}
	b.WriteString("\n| load | server | calls/s | p50, ms | p99, ms | server CPU of a call, µs | Redis CPU of a call, µs |\n|---|---|--:|--:|--:|--:|--:|\n")
	for _, row := range r.rows {
		m := row.median
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f | %.1f | %.3g |\n", row.load, row.server,
			benchkit.Thousands(int64(m(func(f figures) float64 { return f.perSecond })), " "),
			m(func(f figures) float64 { return f.p50 }), m(func(f figures) float64 { return f.p99 }),
			m(func(f figures) float64 { return f.server }), m(func(f figures) float64 { return f.redis }))
	}
	return b.String()
}
