package accuracy

import (
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// callLegend explains the page of calls in flight.
const callLegend = `A fleet makes calls under a limit of calls in flight ([limits.md](../limits.md#calls-in-flight)). All kinds of a scenario get the same calls at the same times: at random, at a random process, of exponential length. No process ends, and no message is lost. The load is the number of calls that would run at once without a limit, as a part of the limit.

| kind | limiter |
|---|---|
| engine | ` + "`internal/permits`, the engine of `hybrid.ConcurrencyLimiter`, with Redis's side in Go" + ` |
| limiter | ` + "`hybrid.ConcurrencyLimiter`" + ` with the real scripts on miniredis |
| sorted-set | a model of the sorted set of ` + "`bench/rivals`" + `: one message for each call, one for its end and one for each renewal, one round trip away; no call waits for a place |
| central | one semaphore in one place, without a network: calls wait in order |

The limiter takes about 1 s of processor time for 1000 messages, and as much for a quarter of an hour of one process. So it has short scenarios only, whose names begin with "limiter". Their musts compare it with the engine.

The sorted set renews each call that runs, every third of a lease of 10 s. Without renewals, it would keep the place of a killed call for as long as the longest call. Heartbeats are not counted: a process with a hub sends one a second, for whatever it limits.

- *Share*: the admitted calls, divided by those of central.
- *Messages* to Redis for each admitted call. *Without renewals*: the same without those of the sorted set. *Ops*: the keys in the messages without renewals.
- *At once*: the most calls of a key that ran at one time in the whole run, divided by the limit. All other figures are of the steady part.
- *Waited*: the part of the admitted calls that took any time. p50 and p99 are of their waits.
- *Musts* are the bounds of the scenario file. "3 of 3" means that all hold. Otherwise the cell has each bound that does not hold, with the figure.
`

var callColumns = []column[CallRow]{
	{"scenario", func(r CallRow) string { return r.Case.Scenario }},
	{"kind", func(r CallRow) string { return r.Kind }},
	{"admitted", func(r CallRow) string { return fmt.Sprint(r.Admitted) }},
	{"share", func(r CallRow) string { return fixed(r.Share, 4) }},
	{"messages per admitted call", func(r CallRow) string { return r.cost(r.PerAdmission) }},
	{"without renewals", func(r CallRow) string { return r.cost(r.Bare) }},
	{"ops", func(r CallRow) string { return r.cost(r.OpsPerAdmission) }},
	{"at once", func(r CallRow) string { return fixed(r.AtOnce, 3) }},
	{"waited", func(r CallRow) string { return percent(r.Waits) }},
	{"p50", func(r CallRow) string { return r.wait(r.Half) }},
	{"p99", func(r CallRow) string { return r.wait(r.Slow) }},
	{"denied", func(r CallRow) string { return percent(r.Denied) }},
	{"musts", func(r CallRow) string { return verdict(r.Checks, r.Violated) }},
}

// cost formats messages or ops for each admitted call. The central semaphore has none.
func (r CallRow) cost(x Figure) string {
	if r.Kind == string(fleet.CentralExact) {
		return none
	}
	if x < 1 {
		return significant(x)
	}
	return fixed(x, 3)
}

// wait formats a wait in ms.
func (r CallRow) wait(x Figure) string {
	if r.Waits == 0 {
		return none
	}
	return significant(x) + " ms"
}

// Markdown returns the page.
func (r *CallResult) Markdown() string {
	var b strings.Builder
	musts, rows := r.Failed()
	writeHead(&b, "Calls in flight of whole fleets, in virtual time", r.Command, r.Versions)
	writeVerdict(&b, musts, rows, len(r.Rows))
	b.WriteString(callLegend + "\n")
	writeTable(&b, callColumns, r.Rows, func(r CallRow) string { return r.Case.Scenario })
	b.WriteString("\n## The scenarios\n\n| scenario | setting |\n|---|---|\n")
	for _, f := range r.families() {
		fmt.Fprintf(&b, "| [%s](../../bench/accuracy/calls/%s.txt) | %s: %s |\n", f.Name, f.Name, f.Title, f.Setting())
	}
	return b.String()
}

// String returns the row in one line, for the log.
func (r CallRow) String() string {
	return fmt.Sprintf("%s %s: %d admitted, %s messages for each, %s at once, %s waited, %s denied",
		r.Case.Scenario, r.Kind, r.Admitted, significant(r.PerAdmission), fixed(r.AtOnce, 3), percent(r.Waits), percent(r.Denied))
}
