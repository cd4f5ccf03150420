package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
)

// Columns, and their formats.
var (
	col                    = benchkit.Col
	round, one, two, three = benchkit.Verb("%.0f"), benchkit.Verb("%.1f"), benchkit.Verb("%.2f"), benchkit.Verb("%.3f")
	share                  = benchkit.Share("%.1f %%")
)

// page returns bench/REDIS.md.
func (r *results) page() string {
	var b strings.Builder
	m := &r.machine
	b.WriteString("# The cost for Redis\n\nWritten by `make bench-redis`: do not edit.\n\n")
	fmt.Fprintf(&b, "%s on loopback. Load average: %s before, %s after. "+
		"The cores are shared, so trust ratios more than absolute figures. %s.\n\n",
		m.about, m.loadBefore, m.loadAfter, m.modules)
	fmt.Fprintf(&b, "Figures are medians of %d interleaved rounds unless stated otherwise. "+
		"Redis CPU is user and system time by `INFO cpu`. *In the script* is `usec` of `INFO commandstats`, "+
		"which is wall time. Messages are top-level commands, and bytes those on the socket: "+
		"with heartbeats and new connections.\n\n", r.scale.rounds)
	b.WriteString("| requirement | bound | measured |\n|---|---|--:|\n")
	musts := r.musts()
	slices.SortStableFunc(musts, func(a, b benchkit.Must) int { // first where the bound is missed
		return cmp.Compare(missed(b), missed(a))
	})
	for _, m := range musts {
		fmt.Fprintf(&b, "| %s | %v | %.3g%s |\n", m.What, m.Bound, m.Got, missed(m))
	}
	for _, p := range r.parts() {
		if rows := r.Of(p.table); len(rows) > 0 {
			b.WriteString("\n" + p.text + "\n\n")
			benchkit.Table(&b, p.names, p.columns, rows, p.label)
		}
	}
	return b.String()
}

func missed(m benchkit.Must) string {
	if m.Reached() {
		return ""
	}
	return ", **missed**"
}

// byLoad returns a label of a row: its load, which stands only in the first row of a block, and its name.
func byLoad() func(*benchkit.Row) string {
	last := ""
	return func(row *benchkit.Row) string {
		load := row.Load
		if load == last {
			load = ""
		}
		last = row.Load
		return load + " | " + row.Name
	}
}

// part is a text and a table.
type part struct {
	table, text string
	names       []string
	label       func(*benchkit.Row) string
	columns     []benchkit.Column
}

func name(row *benchkit.Row) string { return row.Name }

// parts returns those of the page, in its order.
func (r *results) parts() []part {
	return slices.Concat(r.opParts(), r.decisionParts(), r.fleetParts(), r.hotParts(), r.cacheParts())
}

func (r *results) opParts() []part {
	return []part{{
		table: "op",
		text: fmt.Sprintf("## A synced op\n\nAn op as package hybrid sends it for a key in use: 7 units owed, "+
			"a request for a lease, and the last view. The ops go round %s keys with states: in batches of `lua.Batch`, and *alone*, "+
			"each in its own call of a pipeline, without an envelope. *Blocked* is the wall time of a batch, by `INFO latencystats`. "+
			"The largest batch is `wire.MaxOps` = %d ([why](../docs/decisions/0001-batch-size.md)).",
			benchkit.Whole(costKeys), protocol.MaxOps),
		names: []string{"ops in the batch"},
		label: func(row *benchkit.Row) string {
			if row.Name == fmt.Sprint(protocol.MaxOps) {
				return "**" + row.Name + "**"
			}
			return row.Name
		},
		columns: []benchkit.Column{
			col("Redis CPU, µs/op", "cpu", one), col("in the script", "script", one),
			col("alone: µs/op", "alone cpu", one), col("in the script", "alone script", one),
			col("CPU ratio", "cpu / alone cpu", two), col("bytes/op to Redis", "sent", round), col("from it", "received", round),
			col("alone: to", "alone sent", round), col("from", "alone received", round),
			col("blocked p50, µs", "p50", round), col("p99", "p99", round),
		},
	}}
}

func (r *results) decisionParts() []part {
	limiter := []string{"limiter"}
	return []part{{
		table: "decision",
		text: fmt.Sprintf("## A decision\n\n%d goroutines decide as fast as they can, or at the given rate, in rounds of %v. "+
			"Limits a second: %s for the hot key, %d for each of %s keys, and %d for each of %s keys, "+
			"of which every goroutine has its own. Inner calls are the commands that scripts call.",
			callers, r.scale.lasts, benchkit.Whole(hotRate), tailRate, benchkit.Whole(zipfKeys), ownRate,
			benchkit.Whole(ownKeys)),
		names: []string{"limiter", "load"},
		label: func(row *benchkit.Row) string { return row.Name + " | " + row.Load },
		columns: []benchkit.Column{
			col("decisions/s", "perSecond", benchkit.Whole), col("messages/decision", "messages", small),
			col("inner calls", "inner", small), col("Redis CPU, µs", "cpu", small), col("bytes to Redis", "sent", small), col("from it", "received", small),
			col("errors", "fails", share),
		},
	}, {
		table: "timed",
		text: fmt.Sprintf("The time of a decision on the hot key, in µs, at %s decisions/s in total: "+
			"all rounds in one HDR histogram, with the time to read the clock.", benchkit.Whole(float64(r.scale.timing))),
		names: limiter, label: name,
		columns: []benchkit.Column{
			col("p50", "p50", plainMicros), col("p99", "p99", plainMicros),
			col("p99.9", "p99.9", plainMicros), col("max", "max", plainMicros),
		},
	}, {
		table: "single",
		text:  fmt.Sprintf("A decision of one caller without a pause, on the keys of one of the %d goroutines:", callers),
		names: limiter, label: name,
		columns: []benchkit.Column{
			col("decisions/s", "perSecond", benchkit.Whole), col("p50", "p50", micros), col("p99", "p99", micros),
			col("allocations", "mallocs", one),
		},
	}, {
		table: "storm",
		text: fmt.Sprintf("The same keys after `SCRIPT FLUSH`, as after a failover: %d goroutines ask once, "+
			"all at the same time. The costs are those of a call.", callers),
		names: limiter, label: name,
		columns: []benchkit.Column{
			col("messages", "messages", two), col("bytes to Redis", "sent", benchkit.Whole), col("Redis CPU, µs", "cpu", one),
			col("slowest", "slowest", micros), col("errors", "fails", share),
		},
	}}
}

func (r *results) fleetParts() []part {
	var b strings.Builder
	fmt.Fprintf(&b, "## Services\n\nThe processes of a fleet share keys, and make calls at random times. "+
		"Each limiter has its own processes and Redis. After the calls of a turn comes a rest, in which debts are paid and states expire. "+
		"The costs of both are divided by the calls; an idle Redis's CPU time is subtracted. The CPU of the processes "+
		"includes the load generator. With two limits, each call is also under a limit of one of %d tenants, "+
		"with %d times the rate; redis_rate is called twice.\n\n", tenants, tenantFactor)
	benchkit.Head(&b, 1, "load", "processes", "keys", "limit of a key", "calls/s", "calls", "rest")
	for _, f := range r.scale.fleets {
		keys := fmt.Sprint(f.keys)
		if f.zipf {
			keys += fmt.Sprintf(", Zipf %.1f", zipfSkew)
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %d/%v | %d | %v | %v |\n",
			f.name, f.members, keys, f.limit.Rate, f.limit.Period, f.perSecond, f.lasts, f.settle)
	}
	return []part{{
		table: "fleet",
		text:  strings.TrimSuffix(b.String(), "\n"),
		names: []string{"load", "limiter"},
		label: byLoad(),
		columns: []benchkit.Column{
			col("Redis CPU, µs", "cpu", one), col("in the script", "script", one), col("messages", "messages", small),
			col("bytes", "bytes", round), col("CPU of the processes, µs", "process", round),
			col("p50, µs", "p50", plainMicros), col("p99, µs", "p99", plainMicros),
			col("denied, %", "denied", benchkit.Share("%.1f")),
		},
	}, {
		table: "beat",
		text: fmt.Sprintf("## Heartbeats\n\n%d processes of an idle fleet that know each other. A group is a set "+
			"of processes with the same limiters. The groups of a fleet share one limiter, so that each is counted by all. The times are for one "+
			"heartbeat, of a pipeline. *Of a core* is Redis CPU · messages · processes.", beatProcesses),
		names: []string{"limiters of a process"}, label: name,
		columns: []benchkit.Column{
			col("groups", "groups", round), col("in the script, µs", "script", one), col("Redis CPU, µs", "cpu", one),
			col("messages/s of a process", "messages", small), col("Redis, of a core", "core", share),
		},
	}, {
		table: "idle",
		text: fmt.Sprintf("## Idle\n\nSeconds without a decision: before a hybrid limiter is made, and with a limiter "+
			"that holds %s keys and has been idle for %v. The measurement asks Redis twice a second, and Redis deletes expired states.",
			benchkit.Whole(r.Row("idle", "", idleLimiter).Median("keys")), r.scale.settle),
		names: []string{"process"}, label: name,
		columns: []benchkit.Column{
			col("CPU of the process, ms/s", "process", two), col("of Redis, ms/s", "redis", two),
			col("messages/s", "messages", round),
		},
	}}
}

func (r *results) cacheParts() []part {
	count := func(n int) string { return benchkit.Whole(float64(n)) }
	ns := func(v float64) string { return fmt.Sprint(int64(v)) }
	return []part{{
		table: "churn",
		text: fmt.Sprintf("## Many keys\n\nInsertions of unique keys into a full cache: %s a round, and on Redis %s "+
			"by 512 goroutines. On Redis a new key asks Redis, and an evicted key has paid its debt. These rounds are not "+
			"interleaved, because the garbage collector works for all caches. *GC* is its share of the CPU of the process.",
			count(r.scale.churnEach), count(r.scale.churnOnRedis)),
		names: []string{"cache"}, label: name,
		columns: []benchkit.Column{
			col("keys held", "keys", round), col("insertion, ns", "wall", ns), col("CPU of the process, ns", "process", ns),
			col("of Redis, ns", "redis", ns), col("evicted", "evicted", three), col("refused", "refused", three),
			col("GC", "gc", benchkit.Share("%.0f %%")),
		},
	}, {
		table: "survival",
		text: fmt.Sprintf("The share of calls for keys in use whose key a scan had evicted. Of ten calls one is for one of "+
			"%s keys in use (Zipf %.1f), and nine for keys that are used once. The cache holds %s keys.",
			count(r.scale.inUse()), zipfSkew, count(r.scale.survivalKeys)),
		names: []string{"cache"}, label: name,
		columns: []benchkit.Column{col("evicted", "missed", benchkit.Share("%.2f %%"))},
	}}
}

// small formats a figure that may be large or nearly zero.
func small(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 0.01:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

// micros formats ns as µs.
func micros(ns float64) string {
	if ns >= 100_000 {
		return benchkit.Whole(ns/1000) + " µs"
	}
	return plainMicros(ns) + " µs"
}

// plainMicros formats ns as µs, without the unit.
func plainMicros(ns float64) string {
	if ns >= 100_000 {
		return strconv.FormatInt(int64(ns/1000), 10)
	}
	return strconv.FormatFloat(float64(int64(ns))/1000, 'g', 3, 64)
}
