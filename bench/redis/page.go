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
	fmt.Fprintf(&b, "# The cost for Redis\n\nWritten by `make bench-redis` (`cd bench && go run ./redis -write REDIS.md`): do not edit.\n\n")
	fmt.Fprintf(&b, "%s; %s; %s; redis-server %s (%s, no persistence) on loopback, started by the command. Load average: %s before, %s after. The cores are shared, so trust ratios more than absolute figures. %s.\n\n",
		m.cpu, m.system, runtime.Version(), m.redis, m.malloc, m.loadBefore, m.loadAfter, strings.Join(m.versions, ", "))
	fmt.Fprintf(&b, "Figures are medians of %d interleaved rounds unless stated otherwise.\n\n", r.scale.rounds)
	b.WriteString("| requirement | bound | measured | |\n|---|---|--:|---|\n")
	musts := r.musts()
	slices.SortStableFunc(musts, func(a, b must) int { // first where the bound is missed
		return cmp.Compare(btoi(a.reached()), btoi(b.reached()))
	})
	for _, m := range musts {
		verdict := "reached"
		if !m.reached() {
			verdict = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %.3g | %s |\n", m.what, m.want, m.got, verdict)
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
	fmt.Fprintf(b, "An op as package hybrid sends it for a key in use: 7 units owed, a request for a lease, and the last view. The ops go round %s keys with states. They are sent by `lua.Batch` in batches with an envelope, and for comparison *alone*: each in its own call without an envelope, with the same number of calls in a pipeline. Redis CPU is user and system time by `INFO cpu`. The time in the script is `usec` of `INFO commandstats`. Bytes are counted on the socket. *Blocked* is the wall time of the whole batch, by `INFO latencystats`.\n\n", thousands(costKeys))
	b.WriteString("| ops in the batch | Redis CPU, µs/op | in the script | alone: µs/op | in the script | CPU ratio | bytes/op to Redis | from it | alone: to | from | blocked p50, µs | p99 |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
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
	fmt.Fprintf(b, "\nThe largest batch is `wire.MaxOps` = %d (docs/decisions/0001-batch-size.md).\n", protocol.MaxOps)
}

func (r *results) decisionPage(b *strings.Builder) {
	b.WriteString("\n## A decision\n\n")
	fmt.Fprintf(b, "%d goroutines decide as fast as they can, or at the given rate. Each round lasts %v. The limit is %s a second for the hot key, %d a second for each of %s keys, and %d a second for each of %s keys, of which every goroutine has its own. Messages are top-level commands on the socket. Inner calls are the commands that scripts call. Both include heartbeats and new connections. *Errors* is the share of calls that returned an error.\n\n",
		callers, r.scale.lasts, thousands(hotRate), tailRate, thousands(zipfKeys), ownRate, thousands(ownKeys))
	b.WriteString("| limiter | load | decisions/s | messages/decision | inner calls | Redis CPU, µs | bytes to Redis | from it | errors |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, d := range r.decisions {
		m := d.cost.median
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %.1f %% |\n", d.name, d.load, thousands(int64(m(rateOf))),
			small(m(func(d perDecision) float64 { return d.messages })), small(m(func(d perDecision) float64 { return d.inner })),
			small(m(func(d perDecision) float64 { return d.cpu })), small(m(func(d perDecision) float64 { return d.sent })),
			small(m(func(d perDecision) float64 { return d.received })), 100*m(func(d perDecision) float64 { return d.fails }))
	}
	fmt.Fprintf(b, "\nThe time of a single decision on the hot key, from the call to its return, at %s decisions/s in total. All rounds are in one HDR histogram, with the time to read the clock.\n\n| limiter | p50 | p99 | p99.9 | max | calls |\n|---|--:|--:|--:|--:|--:|\n", thousands(int64(r.scale.timing)))
	for _, d := range r.decisions {
		if h := d.took; h != nil && h.TotalCount() > 0 {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", d.name, micros(h.ValueAtQuantile(50)), micros(h.ValueAtQuantile(99)),
				micros(h.ValueAtQuantile(99.9)), micros(h.Max()), thousands(h.TotalCount()))
		}
	}
	r.singlePage(b)
	r.stormPage(b)
}

// singlePage has the decisions of one caller.
func (r *results) singlePage(b *strings.Builder) {
	fmt.Fprintf(b, "\nA single decision with one caller, which decides without a pause, on the keys of one of the %d goroutines. p50 and p99 are medians of the rounds.\n\n| limiter | decisions/s | p50 | p99 | allocations |\n|---|--:|--:|--:|--:|\n", callers)
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
	b.WriteString("The processes of a fleet share keys, and make calls at random times. Each kind of limiter has its own processes and its own Redis. A turn has some seconds of calls, and then a rest, in which debts are paid and states expire. Its costs are those of both, with heartbeats and new connections. From the CPU time of Redis (user and system, by `INFO cpu`) that of the same Redis before there were processes is subtracted. *In the script* is `usec` of `INFO commandstats`. The CPU of the processes includes the load generator. p50 and p99 are those of the calls of all processes in a turn. *Without Redis* is the share of decisions by the fallback. With two limits, redis_rate is called twice.\n")
	for _, t := range r.fleets {
		t.page(b)
	}
}

func (t *fleetTable) page(b *strings.Builder) {
	f := t.size
	drawn, more := "drawn uniformly", ""
	if f.zipf {
		drawn = fmt.Sprintf("drawn by Zipf's law (s = %.1f)", zipfSkew)
	}
	if f.two {
		more = fmt.Sprintf(" Each call is also under a limit of its tenant, of which there are %d, with %d times the rate.", tenants, tenantFactor)
	}
	fmt.Fprintf(b, "\n### %s\n\n%d processes, %s keys, %s, each with a limit of %d in %v; %s calls a second for %v, then %v of rest.%s\n\n", strings.ToUpper(f.name[:1])+f.name[1:],
		f.members, thousands(int64(f.keys)), drawn, f.limit.Rate, f.limit.Period, thousands(int64(f.perSecond)), f.lasts, f.settle, more)
	b.WriteString("| limiter | Redis CPU, µs/call | in the script | messages/call | bytes to and from Redis | CPU of the processes, µs | p50 | p99 | denied | errors | without Redis |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, row := range t.rows {
		m := row.cost.median
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %s | %.0f | %.0f | %s | %s | %.1f %% | %.1f %% | %.1f %% |\n", row.name,
			m(func(c fewCalls) float64 { return c.cpu }), m(func(c fewCalls) float64 { return c.script }),
			small(m(func(c fewCalls) float64 { return c.messages })), m(func(c fewCalls) float64 { return c.bytes }),
			m(func(c fewCalls) float64 { return c.process }),
			micros(int64(m(func(c fewCalls) float64 { return c.p50 }))), micros(int64(m(func(c fewCalls) float64 { return c.p99 }))),
			100*m(func(c fewCalls) float64 { return c.denied }), 100*m(func(c fewCalls) float64 { return c.fails }),
			100*m(func(c fewCalls) float64 { return c.without }))
	}
}

func (r *results) idlePage(b *strings.Builder) {
	b.WriteString("\n## Idle\n\n")
	fmt.Fprintf(b, "Seconds without a decision: before a hybrid limiter is made, and with a limiter that holds %s keys and has been idle for %v. The measurement itself asks Redis twice a second. Meanwhile Redis still deletes expired states.\n\n", thousands(int64(r.idle.keys)), r.scale.settle)
	b.WriteString("| | CPU of the process, ms/s | of Redis, ms/s | messages/s |\n|---|--:|--:|--:|\n")
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
	fmt.Fprintf(b, "Insertions of unique keys into a full cache, so that each evicts a key: %s a round, and on Redis %s a round by 512 goroutines. On Redis a new key asks Redis, and an evicted key has paid its debt. These rounds are not interleaved, because the garbage collector works for all caches of the process. *GC* is its share of the CPU time of the process, which also makes the strings of the keys.\n\n", thousands(int64(r.scale.churnEach)), thousands(int64(r.scale.churnOnRedis)))
	b.WriteString("| | keys held | insertion, ns | CPU of the process, ns | of Redis, ns | evicted | refused | GC |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, c := range r.churn {
		m := c.cost.median
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %.3f | %.3f | %.0f %% |\n", c.name, thousands(int64(c.keys)),
			thousands(int64(m(func(i insertion) float64 { return i.wall }))), thousands(int64(m(func(i insertion) float64 { return i.process }))),
			thousands(int64(m(func(i insertion) float64 { return i.redis }))),
			m(func(i insertion) float64 { return i.evicted }), m(func(i insertion) float64 { return i.refused }), 100*c.gcShare)
	}
}

// survivalPage belongs to the section of many keys.
func (r *results) survivalPage(b *strings.Builder) {
	if len(r.survival) > 0 {
		s := r.survival[0]
		fmt.Fprintf(b, "\nThe share of calls for keys in use whose key a scan had evicted. Of ten calls one is for one of %s keys in use (Zipf %.1f). The other nine are for keys that are used only once. The cache holds %s keys. A round has %s calls for keys in use.\n\n| | evicted |\n|---|--:|\n",
			thousands(int64(s.inUse)), zipfSkew, thousands(int64(s.cacheKeys)), thousands(int64(r.scale.survivalCalls)))
		for _, s := range r.survival {
			fmt.Fprintf(b, "| %s | %.2f %% |\n", s.name, 100*s.missed.median(same))
		}
	}
}
