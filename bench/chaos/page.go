package main

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// page has the finished runs. docs/reliability.md and bench/CHAOS.md show them.
type page struct {
	command string
	machine string
	rows    []*outcome
	calls   []*callsOutcome
}

// machine returns a sentence about the machine and the versions.
func machine() string {
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, redis-server %s; go-redis %s.", benchkit.CPU(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		runtime.Version(), benchkit.RedisServer(), benchkit.Modules()["github.com/redis/go-redis/v9"])
}

const pageHead = `This page has the promises of the library under faults, and the measured values. ` + "`make chaos`" + ` plays each fault on real redis-server processes, under the load of three client processes. Every decision, every sync and every debit is recorded and checked. [bench/CHAOS.md](../bench/CHAOS.md) has all figures of these runs, the checks, and the bounds on a busy machine.

N is the number of processes. C is the number of units of a key that a process may admit before Redis knows.

## Promises

`

const pageBounds = `
**Faults that raise the bound of the shared limit:**

| fault | raises the bound by |
|---|---|
| Redis loses its memory | one second of the rate, because the last view of a living process may be that old |
| the clock of Redis jumps forwards | a burst |
| a process is frozen | the units that it held; and C is that of a fleet that does not count it |

**Debits that differ.** Redis counts other units than the processes know in three cases:

- *A process is killed.* At most C units of a key, and the units of its fallback, are never counted. At most a lease of each key is lost.
- *A failover loses writes.* The promoted replica lacks debits of the old master.
- *Redis loses a reply, and then the key* (wiped, evicted, or full and expired). The process sends the batch again, and Redis counts it anew.

## Measured

| column | meaning |
|---|---|
| slowest | the longest decision, in ms |
| admitted | units above rate·t that leases, credit and Redis admitted in the worst of all intervals, of the key closest to its bound / the bound |
| by fallbacks | the same for fallbacks; in the rows of a critical reserve for those of one process |
| back | seconds from the end of the fault until all processes decide with Redis again |

A fault with "+" is a random mix of three. A row is in ` + "`ModeAuto`" + `, or in ` + "`ModeStrict`" + ` (*strict*), where C is 0.

`

const pageCalls = `
## Calls in flight

Three processes have a limit of ` + "`12 concurrent`" + `. *At once*: the largest number of calls that ran at one moment with permits of Redis / the bound. An eviction or a failover may add the calls after the "+" ([decision 0051](decisions/0051-permits-by-membership.md)). *Back*: seconds from the end of the fault until each process has a permit of Redis again; the bound is %d s.

`

// text returns docs/reliability.md.
func (p *page) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Printed by: %s. Do not edit. -->\n\n# Reliability\n\n", p.command)
	b.WriteString(pageHead)
	b.WriteString(p.promises())
	b.WriteString(pageBounds)
	b.WriteString(p.machine + "\n")
	for _, on := range []struct{ topology, title string }{{topologySingle, "One server"}, {topologySentinel, "Sentinel"}, {topologyCluster, "Cluster"}} {
		rows := slices.DeleteFunc(slices.Clone(p.rows), func(o *outcome) bool { return o.plan.topology != on.topology })
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n| fault | slowest | admitted | by fallbacks | back |\n|---|--:|--:|--:|--:|\n", on.title)
		for _, o := range rows {
			b.WriteString(o.promised())
		}
	}
	b.WriteString(callsPromised(p.calls))
	b.WriteString(p.broken())
	return b.String()
}

// promises returns the table of the promises, each with the row that came closest to its bound.
func (p *page) promises() string {
	var decisions, wrong int64
	var slowest, open, back time.Duration
	var exact int
	var critical float64
	for _, o := range p.rows {
		v := o.verdict
		decisions, wrong = decisions+v.decisions, wrong+v.errors
		slowest, open, back = max(slowest, v.slowest), max(open, v.p99), max(back, v.recovered)
		if v.accounting == "to the unit" {
			exact++
		}
		if r := v.reserve; r.calls > 0 {
			critical = max(critical, float64(r.calls-r.admitted)/float64(r.calls))
		}
	}
	var b strings.Builder
	b.WriteString("| promise | bound | worst row |\n|---|--:|--:|\n")
	for _, row := range [][3]any{
		{"No caller gets an error", "0", fmt.Sprintf("%d of %s decisions", wrong, benchkit.Thousands(decisions, ","))},
		{"No decision waits for long", fmt.Sprintf("`MaxWait` + %d ms = %d ms", slack.Milliseconds(), (maxWait + slack).Milliseconds()), fmt.Sprintf("%.1f ms", ms(slowest))},
		{"Without Redis, 99 of 100 decisions on keys in use are fast", fmt.Sprintf("%d µs", openP99.Microseconds()), fmt.Sprintf("%.1f µs", float64(open.Nanoseconds())/1000)},
		{"After the fault, all processes decide with Redis again", fmt.Sprintf("%.0f s", recovery.Seconds()), fmt.Sprintf("%.1f s", back.Seconds())},
		{"The shared limit holds, in units above rate·t", "burst + (N − 1)·C", "[below](#measured)"},
		{"All fallbacks together admit at most one burst for each outage, in units above rate·t", "burst, and a fraction of a unit for each process", "[below](#measured)"},
		{"[Critical calls](limits.md#classes) are admitted while others are denied", fmt.Sprintf("%.0f %%", 100*mostCritical), fmt.Sprintf("%.1f %%", 100*(1-critical))},
		{"Redis debits the units that the processes know, to the unit", "all rows but the three cases below", fmt.Sprintf("%d of %d rows", exact, len(p.rows))},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row[:]...)
	}
	return b.String()
}

// promised returns the row in docs/reliability.md.
func (o *outcome) promised() string {
	v, fallbacks, name := o.verdict, "–", o.plan.name()
	if v.alone.units > 0 {
		fallbacks = v.alone.narrow()
	}
	if o.plan.mode == hybrid.ModeStrict {
		name += ", *strict*"
	}
	if len(v.violations) > 0 {
		name += " **✗**"
	}
	return fmt.Sprintf("| %s | %.1f | %s | %s | %.1f |\n", name, ms(v.slowest), v.shared.narrow(), fallbacks, v.recovered.Seconds())
}

// narrow returns the text for a column of a narrow table.
func (r reach) narrow() string { return fmt.Sprintf("%.0f/%.0f", r.units, r.bound) }

// callsPromised returns the part of docs/reliability.md about calls in flight.
func callsPromised(rows []*callsOutcome) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, pageCalls, int(callsBack.Seconds()))
	fallback := slices.MaxFunc(rows, func(x, y *callsOutcome) int { return cmp.Compare(x.verdict.mostFallback, y.verdict.mostFallback) })
	freed := slices.MaxFunc(rows, func(x, y *callsOutcome) int { return cmp.Compare(x.verdict.free, y.verdict.free) })
	fmt.Fprintf(&b, "- The fallback of a process ran at most %d calls at once; its share is %d.\n", fallback.verdict.mostFallback, callsPermits/callsProcs)
	fmt.Fprintf(&b, "- All permits of a killed process were free for others after %.1f s; the bound is %.0f s.\n", freed.verdict.free.Seconds(), callsFree.Seconds())
	b.WriteString("- Calls that outlive the membership of their process are not counted, because their permits may go to others.\n\n")
	b.WriteString("| fault | at once | back |\n|---|--:|--:|\n")
	for _, o := range rows {
		v := o.verdict
		name, most := o.row.title(), fmt.Sprint(callsPermits)
		if on := o.row.topology(); on != topologySingle {
			name += ", " + on
		}
		if len(v.violations) > 0 {
			name += " **✗**"
		}
		if v.above > 0 {
			most = fmt.Sprintf("%d+%d", callsPermits, v.above)
		}
		fmt.Fprintf(&b, "| %s | %d/%s | %.1f |\n", name, v.most, most, v.back.Seconds())
	}
	return b.String()
}

// broken returns the list of broken promises; empty without one.
func (p *page) broken() string {
	var broken []string
	for _, o := range p.rows {
		for _, x := range o.verdict.violations {
			broken = append(broken, fmt.Sprintf("- %s on %s: %s: %s\n", o.plan.name(), o.plan.where(), x.kind, strings.ReplaceAll(x.text, "\n", " ")))
		}
	}
	for _, o := range p.calls {
		for _, x := range o.verdict.violations {
			broken = append(broken, fmt.Sprintf("- %s: %s: %s\n", o.row.where(), x.kind, x.text))
		}
	}
	if len(broken) == 0 {
		return ""
	}
	return "\n## Broken\n\n" + strings.Join(broken, "")
}
