package main

import (
	"fmt"
	"runtime"
	"strings"

	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
)

// page is bench/REDIS.md.
func (r *results) page() string {
	var b strings.Builder
	m := &r.machine
	fmt.Fprintf(&b, "# What it costs Redis\n\nWritten by `make bench-redis` (`cd bench && go run ./redis -write REDIS.md`): do not edit.\n\n")
	fmt.Fprintf(&b, "%s; %s; %s; redis-server %s (%s, no persistence) on loopback, started by the command. Load average %s before and %s after: the cores are shared, so ratios say more than figures. %s.\n\n",
		m.cpu, m.system, runtime.Version(), m.redis, m.malloc, m.loadBefore, m.loadAfter, strings.Join(m.versions, ", "))
	fmt.Fprintf(&b, "Medians of %d interleaved rounds, where nothing else is said.\n\n", r.scale.rounds)
	b.WriteString("| must be reached | want | measured | |\n|---|---|--:|---|\n")
	for _, m := range r.musts() {
		verdict := "reached"
		if !m.reached() {
			verdict = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %.3g | %s |\n", m.what, m.want, m.got, verdict)
	}
	r.costPage(&b)
	r.decisionPage(&b)
	r.idlePage(&b)
	r.churnPage(&b)
	return b.String()
}

func (r *results) costPage(b *strings.Builder) {
	b.WriteString("\n## A synced op\n\n")
	fmt.Fprintf(b, "An op as package hybrid syncs a key in use (7 units owed, a lease wanted, the last view), over %s keys with states: in batches with an envelope, `lua.Batch` as it is; and each in a call of its own without an envelope, as many in a pipeline. CPU is user and system by `INFO cpu`; in the script, `usec` of `INFO commandstats`; bytes on the socket; blocked, `INFO latencystats` of the whole batch, which is wall time.\n\n", thousands(costKeys))
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
	fmt.Fprintf(b, "%d goroutines as fast as they can (or at the pace that is named), each round %v, limit %s a second for the hot key and %d for each of many. Messages are top-level commands on the socket, inner calls what scripts call; heartbeats and connections are in them. errors are calls that returned one.\n\n",
		callers, r.scale.lasts, thousands(hotRate), tailRate)
	b.WriteString("| limiter | load | decisions/s | messages/decision | inner calls | Redis CPU, µs | bytes to Redis | from it | errors |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, d := range r.decisions {
		m := d.cost.median
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %.1f %% |\n", d.name, d.load, thousands(int64(m(rateOf))),
			small(m(func(d perDecision) float64 { return d.messages })), small(m(func(d perDecision) float64 { return d.inner })),
			small(m(func(d perDecision) float64 { return d.cpu })), small(m(func(d perDecision) float64 { return d.sent })),
			small(m(func(d perDecision) float64 { return d.received })), 100*m(func(d perDecision) float64 { return d.fails }))
	}
	fmt.Fprintf(b, "\nHow long a single decision on the hot key takes, at %s decisions/s together, from the call to its return; all rounds, HDR, clock reading included.\n\n| limiter | p50 | p99 | p99.9 | max | calls |\n|---|--:|--:|--:|--:|--:|\n", thousands(int64(r.scale.timing)))
	for _, d := range r.decisions {
		if h := d.took; h.TotalCount() > 0 {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", d.name, micros(h.ValueAtQuantile(50)), micros(h.ValueAtQuantile(99)),
				micros(h.ValueAtQuantile(99.9)), micros(h.Max()), thousands(h.TotalCount()))
		}
	}
}

func (r *results) idlePage(b *strings.Builder) {
	b.WriteString("\n## Idle\n\n")
	fmt.Fprintf(b, "Seconds without a decision, before a hybrid limiter is made, and with one that holds %s keys and has been idle for %v. The measurement itself asks Redis four times a second. Redis is still forgetting states that have had their time.\n\n", thousands(int64(r.idle.keys)), r.scale.settle)
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
	fmt.Fprintf(b, "Insertions of unique keys into a cache that is full, so that each puts one out: %s a round, on Redis %s by 512 goroutines. There a new key asks Redis, and one that goes has paid what it owes. These rounds are not interleaved: the collector works for whoever is there. Its share is of the CPU of the process, keys' strings being made included.\n\n", thousands(int64(r.scale.churnEach)), thousands(int64(r.scale.churnOnRedis)))
	b.WriteString("| | keys held | insertion, ns | CPU of the process, ns | of Redis, ns | evicted | refused | GC |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, c := range r.churn {
		m := c.cost.median
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %.3f | %.3f | %.0f %% |\n", c.name, thousands(int64(c.keys)),
			thousands(int64(m(func(i insertion) float64 { return i.wall }))), thousands(int64(m(func(i insertion) float64 { return i.process }))),
			thousands(int64(m(func(i insertion) float64 { return i.redis }))),
			m(func(i insertion) float64 { return i.evicted }), m(func(i insertion) float64 { return i.refused }), 100*c.gcShare)
	}
	if len(r.survival) > 0 {
		s := r.survival[0]
		fmt.Fprintf(b, "\nHow many calls for keys in use found that a scan had driven them out. Of ten calls one is for one of %s keys (Zipf %.1f), nine are for keys that nobody uses twice, in a cache of %s; %s calls for keys in use a round.\n\n| | found gone |\n|---|--:|\n",
			thousands(int64(s.inUse)), zipfSkew, thousands(int64(s.cacheKeys)), thousands(int64(r.scale.survivalCalls)))
		for _, s := range r.survival {
			fmt.Fprintf(b, "| %s | %.2f %% |\n", s.name, 100*s.missed.median(same))
		}
	}
}
