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
				title, o.label(), ms(v.slowest), v.shared, v.alone, v.recovered.Seconds())
			title = ""
		}
	}
	if len(p.calls) > 0 {
		fallback, free := 0, time.Duration(0)
		for _, o := range p.calls {
			fallback, free = max(fallback, o.verdict.calls.mostFallback), max(free, o.verdict.calls.free)
		}
		fmt.Fprintf(&b, pageCalls, callsBack.idle.Seconds(), fallback, callsShare, free.Seconds(), callsFree.idle.Seconds())
	}
	for _, o := range p.calls {
		c := o.verdict.calls
		fmt.Fprintf(&b, "| %s | %d/%s | %.1f |\n", o.label(), c.most, c.bound(), c.back.Seconds())
	}
	title := "\n## Broken\n\n"
	for _, o := range slices.Concat(p.rows, p.calls) {
		for _, x := range o.verdict.violations {
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
	if len(o.verdict.violations) > 0 {
		name += " **✗**"
	}
	return name
}

// String returns the excess and its bound; "–": there was none.
func (r reach) String() string {
	if r.units == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f/%.0f", r.units, r.bound)
}

func (c *callsFigures) bound() string {
	if c.above > 0 {
		return fmt.Sprintf("%d+%d", callsPermits, c.above)
	}
	return fmt.Sprint(callsPermits)
}

// ms converts d to milliseconds.
func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// rounded converts d to seconds with one decimal.
func rounded(d time.Duration) float64 { return benchkit.Round(d.Seconds(), 1) }

// callsFigures are the figures of a run with calls in flight.
type callsFigures struct {
	calls, byFallback int
	most              int           // calls at once, without those of the fallback and the outlived ones
	above             int           // by which most may exceed the permits
	mostFallback      int           // calls at once of one process that the fallback admitted
	outlived          int           // calls of a process that was stopped or cut off, whose permits were free for others
	free              time.Duration // until the permits of a killed process run other calls; 0: none was killed
	back              time.Duration // from the end of the fault until each process began a call with a permit of Redis
}

// callsLine is a row of bench/chaos.json with calls in flight. See callsFigures. Times are s.
type callsLine struct {
	Fault, Topology          string
	Calls, ByFallback        int
	AtOnce                   string // with permits of Redis / the permits, and what the guarantee allows above them
	FallbackAtOnce, Outlived int
	FreeAfter                float64 `json:",omitempty"` // 0: no process was killed
	BackAfter                float64
	CPU                      float64
	Broken                   []violation `json:",omitempty"`
}

// line is a row of bench/chaos.json with rates. Unless stated, a figure is as in verdict. Times of decisions are ms,
// and others s.
type line struct {
	Fault, Topology, Mode string
	Decisions, Errors     int64
	Slowest               float64
	OpenP99, LocalP99     float64 `json:",omitempty"` // µs, while a breaker was open, and of the canary
	Admitted, ByFallbacks string  // units / the bound
	// Critical is the part of the promised critical calls that was admitted. InUse is the part of the rate that was in use
	// while calls of the rest were denied. PromisedAfter is the time from the end of the fault until critical calls are
	// promised again.
	Critical, InUse, PromisedAfter float64 `json:",omitempty"`
	// Accounting compares the debits of Redis with the units that the processes know. "Crash": Redis debited so many units
	// more than are known; the range after "of" is permitted. "Debited again": a batch was sent again because its reply
	// was lost, and meanwhile its key was gone. "Lost by the failover": debits of the old master that the new one never
	// had.
	Accounting                    string
	Expired, Free, Lost, Forgiven int64 // as in losses
	BackAfter                     float64
	CPU                           float64     // load of the machine, with everything that ran on it, 0 to 1
	Broken                        []violation `json:",omitempty"`
}

// String returns the row of bench/chaos.json.
func (o *outcome) String() string {
	v, r := o.verdict, o.verdict.reserve
	var row any
	if c := v.calls; c != nil {
		row = callsLine{
			Fault: o.plan.name(), Topology: o.plan.topology, Calls: c.calls, ByFallback: c.byFallback,
			AtOnce: fmt.Sprintf("%d/%s", c.most, c.bound()), FallbackAtOnce: c.mostFallback, Outlived: c.outlived,
			FreeAfter: rounded(c.free), BackAfter: rounded(c.back), CPU: benchkit.Round(v.cpu, 2), Broken: v.violations,
		}
	} else {
		row = line{
			Fault: o.plan.name(), Topology: o.plan.topology, Mode: o.plan.mode.String(), Decisions: v.decisions, Errors: v.errors,
			Slowest: benchkit.Round(ms(v.slowest), 1),
			OpenP99: benchkit.Round(1000*ms(v.p99), 1), LocalP99: benchkit.Round(1000*ms(v.beside), 1),
			Admitted: v.shared.String(), ByFallbacks: v.alone.String(),
			Critical: benchkit.Round(float64(r.admitted)/float64(max(r.calls, 1)), 3), InUse: benchkit.Round(r.used/max(r.rate, 1), 2),
			PromisedAfter: benchkit.Round(float64(r.again)/1e9, 1), Accounting: v.accounting,
			Expired: v.losses.expired, Free: v.losses.free, Lost: v.losses.lost, Forgiven: v.losses.forgiven,
			BackAfter: rounded(v.recovered), CPU: benchkit.Round(v.cpu, 2), Broken: v.violations,
		}
	}
	text, err := json.Marshal(row)
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
