package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// outcome is a finished run.
type outcome struct {
	plan    plan
	verdict *verdict
}

// page has the finished runs. docs/reliability.md and bench/chaos.json show them.
type page struct {
	command string
	machine string
	rows    []*outcome // of rates
	calls   []*outcome // with calls in flight
}

// machine returns a sentence about the machine and the versions.
func machine() string {
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, redis-server %s; go-redis %s.",
		benchkit.CPU(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), benchkit.RedisServer(),
		benchkit.Modules()["github.com/redis/go-redis/v9"])
}

const pageHead = `# Reliability

This page has the promises of the library under faults, and the measured values. ` + "`make chaos`" + ` plays each fault on real redis-server processes, under the load of three client processes. Every decision, every sync and every debit is recorded and checked. [bench/chaos.json](../bench/chaos.json) has all figures of these runs. The checks and the bounds on a busy machine are in [check.go](../bench/chaos/check.go).

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

Three processes have a limit of ` + "`12 concurrent`" + `. *At once*: the largest number of calls that ran at one moment with permits of Redis / the bound. An eviction or a failover may add the calls after the "+" ([decision 0051](decisions/0051-permits-by-membership.md)). *Back*: seconds from the end of the fault until each process has a permit of Redis again; the bound is %.0f s.

- The fallback of a process ran at most %d calls at once; its share is %d.
- All permits of a killed process were free for others after %.1f s; the bound is %.0f s.
- Calls that outlive the membership of their process are not counted, because their permits may go to others.

| fault | at once | back |
|---|--:|--:|
`

// text returns docs/reliability.md.
func (p *page) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Printed by: %s. Do not edit. -->\n\n%s%s%s%s\n", p.command, pageHead, p.promises(), pageBounds, p.machine)
	for _, on := range [][2]string{{topologySingle, "One server"}, {topologySentinel, "Sentinel"}, {topologyCluster, "Cluster"}} {
		title := fmt.Sprintf("\n### %s\n\n| fault | slowest | admitted | by fallbacks | back |\n|---|--:|--:|--:|--:|\n", on[1])
		for _, o := range p.rows {
			if o.plan.topology != on[0] {
				continue
			}
			v := o.verdict
			fmt.Fprintf(&b, "%s| %s | %.1f | %s | %s | %.1f |\n",
				title, o.label(), ms(v.Slowest), v.Shared, v.Alone, v.Recovered.Seconds())
			title = ""
		}
	}
	if len(p.calls) > 0 {
		fallback, free := 0, time.Duration(0)
		for _, o := range p.calls {
			fallback, free = max(fallback, o.verdict.MostFallback), max(free, o.verdict.Free)
		}
		fmt.Fprintf(&b, pageCalls, callsBack.idle.Seconds(), fallback, callsShare, free.Seconds(), callsFree.idle.Seconds())
	}
	for _, o := range p.calls {
		v := o.verdict
		fmt.Fprintf(&b, "| %s | %d/%s | %.1f |\n", o.label(), v.Most, v.bound(), v.Back.Seconds())
	}
	title := "\n## Broken\n\n"
	for _, o := range slices.Concat(p.rows, p.calls) {
		for _, x := range o.verdict.Broken {
			fmt.Fprintf(&b, "%s- %s: %s: %s\n", title, o.plan.title(), x.kind, strings.ReplaceAll(x.text, "\n", " "))
			title = ""
		}
	}
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
		decisions, wrong = decisions+v.Decisions, wrong+v.Errors
		slowest, open, back = max(slowest, v.Slowest), max(open, v.P99), max(back, v.Recovered)
		if v.Accounting == "to the unit" {
			exact++
		}
		if r := v.Reserve; r.calls > 0 {
			critical = max(critical, float64(r.calls-r.admitted)/float64(r.calls))
		}
	}
	var b strings.Builder
	b.WriteString("| promise | bound | worst row |\n|---|--:|--:|\n")
	row := func(promise, bound, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", promise, bound, fmt.Sprintf(format, args...))
	}
	row("No caller gets an error", "0", "%d of %s decisions", wrong, benchkit.Thousands(decisions, ","))
	row("No decision waits for long",
		fmt.Sprintf("`MaxWait` + %d ms = %d ms", slack.Milliseconds(), decides.idle.Milliseconds()), "%.1f ms", ms(slowest))
	row("Without Redis, 99 of 100 decisions on keys in use are fast",
		fmt.Sprintf("%d µs", openP99.Microseconds()), "%.1f µs", 1000*ms(open))
	row("After the fault, all processes decide with Redis again",
		fmt.Sprintf("%.0f s", recovery.Seconds()), "%.1f s", back.Seconds())
	row("The shared limit holds, in units above rate·t", "burst + (N − 1)·C", "[below](#measured)")
	row("All fallbacks together admit at most one burst for each outage, in units above rate·t",
		"burst, and a fraction of a unit for each process", "[below](#measured)")
	row("[Critical calls](limits.md#classes) are admitted while others are denied",
		fmt.Sprintf("%.0f %%", 100*mostCritical), "%.1f %%", 100*(1-critical))
	row("Redis debits the units that the processes know, to the unit",
		"all rows but the three cases below", "%d of %d rows", exact, len(p.rows))
	return b.String()
}

// label returns the name of the row in docs/reliability.md.
func (o *outcome) label() string {
	name := o.plan.name()
	if o.plan.mode == hybrid.ModeStrict {
		name += ", *strict*"
	}
	if o.plan.inFlight && o.plan.topology != topologySingle {
		name += ", " + o.plan.topology
	}
	if len(o.verdict.Broken) > 0 {
		name += " **✗**"
	}
	return name
}

// ms converts d to milliseconds.
func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// String returns the row of bench/chaos.json.
func (o *outcome) String() string {
	text, err := json.Marshal(struct {
		Fault, Topology, Mode string
		*verdict
	}{o.plan.name(), o.plan.topology, o.plan.mode.String(), o.verdict})
	return cmp.Or(string(text), fmt.Sprint(err))
}

// record returns bench/chaos.json: every figure of the runs.
func (p *page) record() string {
	lines := func(rows []*outcome) string {
		var out []string
		for _, o := range rows {
			out = append(out, o.String())
		}
		return strings.Join(out, ",\n")
	}
	return fmt.Sprintf("{\"PrintedBy\": %q, \"Machine\": %q, \"Rates\": [\n%s\n], \"Calls\": [\n%s\n]}\n",
		p.command, p.machine, lines(p.rows), lines(p.calls))
}
