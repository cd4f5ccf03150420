package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/benchkit"
)

// page is docs/reliability.md.
type page struct {
	command string
	redis   string
	rows    []*outcome
}

// text writes it.
func (p *page) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Printed by: %s. Do not edit. -->\n\n# Reliability\n\n", p.command)
	b.WriteString(`Real redis-server processes are killed, stopped, wiped, filled, locked and cut off while real processes limit with them. Each row is one fault, or a random mix of three, under load; every decision, every sync and every debit of it was kept and checked (bench/chaos; doc.go there says how).

- *decisions*, *errors*: of all processes; an error would be one that a caller got.
- *slowest*: beyond what a timer canary in the same process overslept meanwhile. At most MaxWait + 20 ms = 40 ms may be.
- *open p99*: of decisions on warm keys while a breaker was open; at most 10 µs may be, on a machine that is half idle ("–": no breaker was open for long enough, or there are several).
- *admitted*: how far above rate·t the worst of all intervals was / may be, for the key that came closest: by leases, credit and Redis; *by fallbacks* likewise. The bound is burst + (N − 1)·C, and, where Redis lost memory, a second of the rate, which is as old as the last view of a living process may be; where its clock jumped forwards, a burst; where a client was frozen, what it held, and C of a fleet that does not count it. Fallbacks: one burst in all for each outage, and the fraction of a unit for each process.
- *accounting*: what Redis has debited, by its append-only file, against what the processes know: to the unit, or, after a crash, what Redis debited more than is known, of what may be: less by C a key, more by a lease a key. "Debited again": a batch whose reply was lost came again, and its key was gone: wiped, evicted, or full and expired; Redis then counts it anew. "Lost by the failover": debits of the old master that the promoted replica never had, acknowledged or not.
- *CPU*: how busy the machine was, all that ran on it included. The promises of time (slowest, open p99, back after) are for one that is at least half idle; on a busier one a row fails from 1 s and from 10 s.
- *back after*: from the end of the fault, when every slot takes writes, until the last process had decided by lease, credit or Redis and its breakers were closed; at most 2 s may be.

Besides, in every row: no goroutine more than before once clients were closed, at most 1 MiB of heap more, a TTL on every key in every Redis at every look and in every write, and no batch applied twice.

`)
	fmt.Fprintf(&b, "%s, %d cores, %s/%s, %s, redis-server %s; go-redis %s.\n\n",
		benchkit.CPU(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), p.redis, benchkit.Modules()["github.com/redis/go-redis/v9"])
	b.WriteString("| fault | topology | decisions | errors | slowest | open p99 | admitted | by fallbacks | accounting | back after | CPU |\n")
	b.WriteString("|---|---|--:|--:|--:|--:|--:|--:|---|--:|--:|\n")
	for _, o := range p.rows {
		b.WriteString(o.row())
	}
	broken := false
	for _, o := range p.rows {
		for _, x := range o.verdict.violations {
			if !broken {
				b.WriteString("\n## Broken\n\n")
				broken = true
			}
			fmt.Fprintf(&b, "- %s on %s: %s: %s\n", o.plan.name(), o.plan.topology, x.kind, strings.ReplaceAll(x.text, "\n", " "))
		}
	}
	b.WriteString(notCovered)
	return b.String()
}

// notCovered is what is not in the table, and where it is.
const notCovered = `
## Not here

- *A previous schema version beside the current one*: there has been one schema so far. The row "states of another schema" puts states that this version cannot have written under its keys, as an earlier or a later one might: they count as lost, and are restored from the processes' views.
- Message by message loss, duplication and reordering in every order: ` + "`TestExactlyOnce`" + `, and whole fleets in virtual time: [lab/results.md](lab/results.md).
`

func (o *outcome) row() string {
	v := o.verdict
	p99, fallbacks := "–", "–"
	if v.p99 > 0 {
		p99 = fmt.Sprintf("%.1f µs", float64(v.p99.Nanoseconds())/1000)
	}
	if v.alone.units > 0 {
		fallbacks = v.alone.String()
	}
	name := o.plan.name()
	if len(v.violations) > 0 {
		name += " **✗**"
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %.1f ms | %s | %s | %s | %s | %.1f s | %.0f %% |\n", name, o.plan.topology,
		v.decisions, v.errors, ms(v.slowest), p99, v.shared, fallbacks, v.accounting, v.recovered.Seconds(), 100*o.evidence.cpu)
}

func (r reach) String() string { return fmt.Sprintf("%.0f / %.0f", r.units, r.bound) }

// progress is a line for who watches.
func (o *outcome) progress(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1f s  %s", took.Seconds(), o.row())
	for _, x := range o.verdict.violations {
		fmt.Fprintf(&b, "    BROKEN: %s: %s\n", x.kind, x.text)
	}
	return b.String()
}
