package main

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
)

// page returns bench/REDIS.md.
func (r *results) page() string {
	var b strings.Builder
	m := &r.machine
	b.WriteString("# The cost for Redis\n\nWritten by `make bench-redis`: do not edit.\n\n")
	fmt.Fprintf(&b, "%s; %s; %s; redis-server %s (%s, no persistence) on loopback. "+
		"Load average: %s before, %s after. The cores are shared, so trust ratios more than absolute figures. %s.\n\n",
		m.cpu, m.system, runtime.Version(), m.redis, m.malloc, m.loadBefore, m.loadAfter, strings.Join(m.versions, ", "))
	fmt.Fprintf(&b, "Figures are medians of %d interleaved rounds unless stated otherwise. "+
		"Redis CPU is user and system time by `INFO cpu`. *In the script* is `usec` of `INFO commandstats`, "+
		"which is wall time. Messages are top-level commands, and bytes those on the socket: "+
		"with heartbeats and new connections.\n\n", r.scale.rounds)
	b.WriteString("| requirement | bound | measured |\n|---|---|--:|\n")
	musts := r.musts()
	slices.SortStableFunc(musts, func(a, b must) int { // first where the bound is missed
		return cmp.Compare(btoi(a.reached()), btoi(b.reached()))
	})
	for _, m := range musts {
		missed := ""
		if !m.reached() {
			missed = ", **missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %.3g%s |\n", m.what, m.want, m.got, missed)
	}
	if len(r.costs) > 0 {
		r.costPage(&b)
	}
	if len(r.decisions) > 0 {
		r.decisionPage(&b)
	}
	if len(r.fleets) > 0 {
		r.fleetPage(&b)
	}
	if len(r.beats) > 0 {
		r.beatPage(&b)
	}
	if r.idle.keys > 0 {
		r.idlePage(&b)
	}
	if len(r.churn) > 0 {
		r.churnPage(&b)
	}
	r.survivalPage(&b)
	return b.String()
}

func btoi(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (r *results) costPage(b *strings.Builder) {
	b.WriteString("\n## A synced op\n\n")
	fmt.Fprintf(b, "An op as package hybrid sends it for a key in use: 7 units owed, a request for a lease, "+
		"and the last view. The ops go round %s keys with states: in batches of `lua.Batch`, and *alone*, each in its own call of a pipeline, "+
		"without an envelope. *Blocked* is the wall time of a batch, by `INFO latencystats`. "+
		"The largest batch is `wire.MaxOps` = %d ([why](../docs/decisions/0001-batch-size.md)).\n\n",
		thousands(costKeys), protocol.MaxOps)
	heads(b, "ops in the batch", "Redis CPU, µs/op", "in the script", "alone: µs/op", "in the script", "CPU ratio",
		"bytes/op to Redis", "from it", "alone: to", "from", "blocked p50, µs", "p99")
	for _, c := range r.costs {
		of := func(s series[opCost], f func(opCost) float64) float64 { return s.median(f) }
		usec := func(c opCost) float64 { return c.usec }
		sent, received := func(c opCost) float64 { return c.sent }, func(c opCost) float64 { return c.received }
		size := fmt.Sprint(c.size)
		if c.size == protocol.MaxOps {
			size = "**" + size + "**"
		}
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f | %.1f | %.2f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", size,
			of(c.batch, cpuOf), of(c.batch, usec), of(c.pipeline, cpuOf), of(c.pipeline, usec), c.ratio(),
			of(c.batch, sent), of(c.batch, received), of(c.pipeline, sent), of(c.pipeline, received),
			c.batch.median(func(c opCost) float64 { return c.p50 }), c.batch.median(func(c opCost) float64 { return c.p99 }))
	}
}

func (r *results) decisionPage(b *strings.Builder) {
	b.WriteString("\n## A decision\n\n")
	fmt.Fprintf(b, "%d goroutines decide as fast as they can, or at the given rate, in rounds of %v. "+
		"Limits a second: %s for the hot key, %d for each of %s keys, and %d for each of %s keys, "+
		"of which every goroutine has its own. Inner calls are the commands that scripts call.\n\n",
		callers, r.scale.lasts, thousands(hotRate), tailRate, thousands(zipfKeys), ownRate, thousands(ownKeys))
	b.WriteString("| limiter | load | decisions/s | messages/decision | inner calls | Redis CPU, µs | bytes to Redis | " +
		"from it | errors |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, d := range r.decisions {
		m := d.cost.median
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %.1f %% |\n", d.name, d.load, thousands(int64(m(rateOf))),
			small(m(func(d perDecision) float64 { return d.messages })), small(m(func(d perDecision) float64 { return d.inner })),
			small(m(func(d perDecision) float64 { return d.cpu })), small(m(func(d perDecision) float64 { return d.sent })),
			small(m(func(d perDecision) float64 { return d.received })), 100*m(func(d perDecision) float64 { return d.fails }))
	}
	fmt.Fprintf(b, "\nThe time of a decision on the hot key, in µs, at %s decisions/s in total: "+
		"all rounds in one HDR histogram, with the time to read the clock.\n\n", thousands(int64(r.scale.timing)))
	heads(b, "limiter", "p50", "p99", "p99.9", "max")
	for _, d := range r.decisions {
		if h := d.took; h != nil && h.TotalCount() > 0 {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", d.name, plainMicros(h.ValueAtQuantile(50)),
				plainMicros(h.ValueAtQuantile(99)), plainMicros(h.ValueAtQuantile(99.9)), plainMicros(h.Max()))
		}
	}
	r.singlePage(b)
	r.stormPage(b)
}

// singlePage has the decisions of one caller.
func (r *results) singlePage(b *strings.Builder) {
	fmt.Fprintf(b, "\nA decision of one caller without a pause, on the keys of one of the %d goroutines:\n\n", callers)
	heads(b, "limiter", "decisions/s", "p50", "p99", "allocations")
	for _, d := range r.decisions {
		if len(d.single) > 0 {
			m := d.single.median
			fmt.Fprintf(b, "| %s | %s | %s | %s | %.1f |\n", d.name, thousands(int64(m(func(c oneCaller) float64 { return c.perSecond }))),
				micros(int64(m(func(c oneCaller) float64 { return c.p50 }))), micros(int64(m(func(c oneCaller) float64 { return c.p99 }))), m(mallocsOf))
		}
	}
}

func (r *results) fleetPage(b *strings.Builder) {
	b.WriteString("\n## Services\n\n")
	fmt.Fprintf(b, "The processes of a fleet share keys, and make calls at random times. Each limiter has its own "+
		"processes and Redis. After the calls of a turn comes a rest, in which debts are paid and states expire. "+
		"The costs of both are divided by the calls; an idle Redis's CPU time is subtracted. The CPU of the processes "+
		"includes the load generator. With two limits, each call is also under a limit of one of %d tenants, "+
		"with %d times the rate; redis_rate is called twice.\n\n", tenants, tenantFactor)
	heads(b, "load", "processes", "keys", "limit of a key", "calls/s", "calls", "rest")
	for _, t := range r.fleets {
		f := t.size
		keys := fmt.Sprint(f.keys)
		if f.zipf {
			keys += fmt.Sprintf(", Zipf %.1f", zipfSkew)
		}
		fmt.Fprintf(b, "| %s | %d | %s | %d/%v | %d | %v | %v |\n",
			f.name, f.members, keys, f.limit.Rate, f.limit.Period, f.perSecond, f.lasts, f.settle)
	}
	b.WriteString("\n| load | limiter | Redis CPU, µs | in the script | messages | bytes | CPU of the processes, µs | " +
		"p50, µs | p99, µs | denied, % |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, t := range r.fleets {
		for i, row := range t.rows {
			m, load := row.cost.median, t.size.name
			if i > 0 {
				load = ""
			}
			fmt.Fprintf(b, "| %s | %s | %.1f | %.1f | %s | %.0f | %.0f | %s | %s | %.1f |\n", load, row.name,
				m(func(c fewCalls) float64 { return c.cpu }), m(func(c fewCalls) float64 { return c.script }),
				small(m(func(c fewCalls) float64 { return c.messages })), m(func(c fewCalls) float64 { return c.bytes }),
				m(func(c fewCalls) float64 { return c.process }),
				plainMicros(int64(m(func(c fewCalls) float64 { return c.p50 }))),
				plainMicros(int64(m(func(c fewCalls) float64 { return c.p99 }))),
				100*m(func(c fewCalls) float64 { return c.denied }))
		}
	}
}

// heads begins a table. The first column has names, and the others have figures.
func heads(b *strings.Builder, names ...string) {
	fmt.Fprintf(b, "| %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("--:|", len(names)-1))
}

func (r *results) idlePage(b *strings.Builder) {
	b.WriteString("\n## Idle\n\n")
	fmt.Fprintf(b, "Seconds without a decision: before a hybrid limiter is made, and with a limiter that holds %s keys "+
		"and has been idle for %v. The measurement asks Redis twice a second, and Redis deletes expired states.\n\n",
		thousands(int64(r.idle.keys)), r.scale.settle)
	heads(b, "process", "CPU of the process, ms/s", "of Redis, ms/s", "messages/s")
	for _, row := range []struct {
		name string
		s    series[idling]
	}{{"no limiter", r.idle.without}, {"idle limiter", r.idle.with}} {
		fmt.Fprintf(b, "| %s | %.2f | %.2f | %.0f |\n", row.name, row.s.median(func(i idling) float64 { return i.process })/1000,
			row.s.median(func(i idling) float64 { return i.redis })/1000, row.s.median(func(i idling) float64 { return i.messages }))
	}
}

func (r *results) churnPage(b *strings.Builder) {
	b.WriteString("\n## Many keys\n\n")
	fmt.Fprintf(b, "Insertions of unique keys into a full cache: %s a round, and on Redis %s "+
		"by 512 goroutines. On Redis a new key asks Redis, and an evicted key has paid its debt. These rounds are not "+
		"interleaved, because the garbage collector works for all caches. *GC* is its share of the CPU of the process.\n\n",
		thousands(int64(r.scale.churnEach)), thousands(int64(r.scale.churnOnRedis)))
	heads(b, "cache", "keys held", "insertion, ns", "CPU of the process, ns", "of Redis, ns", "evicted", "refused", "GC")
	for _, c := range r.churn {
		m := c.cost.median
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %.3f | %.3f | %.0f %% |\n", c.name, c.keys,
			int64(m(func(i insertion) float64 { return i.wall })), int64(m(func(i insertion) float64 { return i.process })),
			int64(m(func(i insertion) float64 { return i.redis })),
			m(func(i insertion) float64 { return i.evicted }), m(func(i insertion) float64 { return i.refused }), 100*c.gcShare)
	}
}

// survivalPage belongs to the section of many keys.
func (r *results) survivalPage(b *strings.Builder) {
	if len(r.survival) > 0 {
		s := r.survival[0]
		fmt.Fprintf(b, "\nThe share of calls for keys in use whose key a scan had evicted. Of ten calls one is for one of "+
			"%s keys in use (Zipf %.1f), and nine for keys that are used once. The cache holds %s keys.\n\n",
			thousands(int64(s.inUse)), zipfSkew, thousands(int64(s.cacheKeys)))
		heads(b, "cache", "evicted")
		for _, s := range r.survival {
			fmt.Fprintf(b, "| %s | %.2f %% |\n", s.name, 100*s.missed.median(same))
		}
	}
}
