package main

import (
	"fmt"
	"strings"
	"time"
)

// record returns bench/CHAOS.md: every figure of the runs, and the checks. docs/reliability.md has the promises.
func (p *page) record() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Printed by: %s. Do not edit. -->\n\n# Faults: all figures and checks\n\n", p.command)
	b.WriteString(`[Reliability](../docs/reliability.md) has the promises, and the figures that belong to them. This page has all figures of the same runs, for people who change the library.

Each row is one fault, or a random mix of three, on real redis-server processes under the load of real client processes. The faults kill, stop, wipe, fill, lock or cut off servers, or stop clients. Every decision, every sync and every debit of a run is recorded and checked (see doc.go in bench/chaos).

- *decisions*, *errors*: of all processes together. An error counts if a caller received it.
- *slowest*: the longest decision, less the time that a timer canary in the same process overslept meanwhile. The bound is MaxWait + 20 ms = 40 ms.
- *mode*: each fault is played in ModeAuto, and some in ModeStrict too. In ModeStrict, C is 0.
- *open p99*: the 99th percentile of decisions on warm keys while a breaker was open / of the canary. The canary is three calls of package local, which are made right behind each of these decisions. At most one decision in a hundred may take more than 10 µs, and two more for each canary that takes more than 10 µs. "–": no breaker was open for long enough, or each process has several breakers.
- *admitted*: units above rate·t that leases, credit and Redis admitted in the worst of all intervals / the bound. The figures are those of the key that came closest to its bound. The bound is burst + (N − 1)·C. Some faults raise it. If Redis lost its memory: by one second of the rate, because the last view of a living process may be that old. If its clock jumped forwards: by a burst. If a client was frozen: by the units that it held, and C is that of a fleet that does not count this client.
- *by fallbacks*: the same for fallback buckets. The bound is one burst of the whole fleet for each outage, plus a fraction of a unit for each process. In the rows with a *critical reserve* it may be that of one process.
- *accounting*: compares the debits in the append-only file of Redis with the units that the processes know of. "To the unit": both are equal. "Crash": Redis debited this many units more than are known; the range after "of" is permitted, at most C a key, and the units of its fallback, less, and at most a lease a key more. "Debited again": a batch was sent again because its reply was lost, and meanwhile its key was gone (wiped, evicted, or full and expired), so Redis counted the batch anew. "Lost by the failover": debits of the old master, acknowledged or not, that the promoted replica never had.
- *reserve*: the rows with a *critical reserve* have one key with two classes. Critical calls are 60 % of the rate, with spikes. The rest has a floor of 20 % and asks for four times the rate. The figures are the part of the critical calls that was admitted, and the part of the rate that was in use while calls of the rest were denied. The bounds are 99 % and 90 % (80 % on a busy machine). Both hold while Redis answers: before the outage, and again when every process is back, the units that the fallbacks admitted are repaid (at most one share for each class of each process), and the floor has been refilled at the rate, less the critical calls. "After" is the time from the end of the fault until then. In the outage the fallback admits 99 % of the critical calls, too, and the classes of a process have one share together: a burst divided by N, and a fraction of a unit, above its part of rate·t. For C, N is the number of processes times the number of classes.
- *expired*: leased units that ended unspent. They had a reason (see below), or they were of a free lease of a contended key ("free"), which cannot be returned.
- *lost*: units granted to calls that no longer waited, and returned units that Redis did not take.
- *forgiven*: units that fallbacks admitted and that had been refilled before Redis was back. Redis is not told of them. They are at most the units that fallbacks admitted.
- *CPU*: how busy the machine was, with everything that ran on it. The bounds of time (slowest, back after, the return of leases) are for a machine that is at least half idle. On a busier machine a row fails if *slowest* exceeds 1 s, if *back after* or the return of leases exceeds 10 s, or if 25 s after the end of the load a sync is without an answer.
- *back after*: the time from the end of the fault, when every slot takes writes, until the last process had decided by lease, credit or Redis and its breakers were closed. The bound is 2 s.

**Quiet moments.** Each run has four: before the fault, after the recovery, after another second of load, and when no process holds a unit any more. At a quiet moment no call is made and every sync has been answered. A row fails unless these hold at each of them:

- debited = admitted + held + expired + lost − forgiven − dropped, to the unit. Debited units are those in the append-only files, admitted units those that callers were granted. No unit is owed. (For a process that was killed, see *accounting*.)
- expired and lost did not grow for a process without a reason, so that debited = admitted + held. A reason is one of these, in the time since the quiet moment before or in the second before that, which is the life of a lease: a sync of this process failed or took longer than T = 50 ms, or the process stood still for longer than T; Redis lost its memory; the clock of Redis stepped.
- Two exceptions need no such reason. A call that stopped waiting for Redis leaves its unit. And a free lease of a contended key (a call for it was denied, or Redis was left with less than one unit of it) has at most the demand of one second. If no process has a reason, this is checked for each key.
- dropped did not grow, unless Redis refused a batch.
- Units in hand are back two seconds after the end of the load.

Further checks in every row: after Close no client has more goroutines than before, and at most 1 MiB more heap. Every key in every Redis has a TTL, at every check and in every write. No batch is applied twice.

`)
	b.WriteString(p.machine + "\n\n")
	b.WriteString("| fault | topology | mode | decisions | errors | slowest | open p99 | admitted | by fallbacks | reserve | accounting | expired | lost | forgiven | back after | CPU |\n")
	b.WriteString("|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|\n")
	for _, o := range p.rows {
		b.WriteString(o.row())
	}
	b.WriteString(callsText(p.calls))
	b.WriteString(p.broken())
	b.WriteString(notCovered)
	return b.String()
}

// notCovered lists the cases that the table lacks, and the tests that have
// them.
const notCovered = `
## Not here

- *A previous schema version beside the current one*: there has been only one schema so far. In the row "states of another schema", the keys of this version get states that an earlier or a later version might have written. Such states count as lost, and are restored from the views of the processes.
- *Loss, duplication and reordering of single messages, in every order*: ` + "`TestExactlyOnce`" + `. Whole fleets in virtual time: [docs/lab/README.md](../docs/lab/README.md).
`

func (o *outcome) row() string {
	v := o.verdict
	p99, fallbacks := "–", "–"
	if v.p99 > 0 {
		p99 = fmt.Sprintf("%.1f / %.1f µs", float64(v.p99.Nanoseconds())/1000, float64(v.beside.Nanoseconds())/1000)
	}
	if v.alone.units > 0 {
		fallbacks = v.alone.String()
	}
	name := o.plan.name()
	if len(v.violations) > 0 {
		name += " **✗**"
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %d | %.1f ms | %s | %s | %s | %s | %s | %s | %d | %d | %.1f s | %.0f %% |\n", name, o.plan.topology, o.plan.mode,
		v.decisions, v.errors, ms(v.slowest), p99, v.shared, fallbacks, v.reserve, v.accounting, v.losses.expiry(), v.losses.lost, v.losses.forgiven, v.recovered.Seconds(), 100*o.evidence.cpu)
}

func (r reach) String() string { return fmt.Sprintf("%.0f / %.0f", r.units, r.bound) }

// progress returns the row for the screen, with its violations.
func (o *outcome) progress(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1f s  %s", took.Seconds(), o.row())
	for _, x := range o.verdict.violations {
		fmt.Fprintf(&b, "    BROKEN: %s: %s\n", x.kind, x.text)
	}
	return b.String()
}
