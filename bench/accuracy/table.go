package accuracy

import (
	"encoding/json"
	"fmt"
	"strings"
)

// legend explains the columns of the table.
const legend = `- *Utilisation*: the admitted units divided by the units that one central limiter of the same algorithm admits of the same calls, in the whole run and in its steady part.
- *Exceedance*: the largest excess of any key over the promise of the algorithm, in the whole run. Of a bucket: the excess over burst + rate·t in any interval. Of fixed windows: over rate·m in any m windows in a row. Of a sliding window: of its estimate over the rate. Of a log: of its units over the rate. Of a queue: over its length, or, as units leave it, over the rate. Windows and logs follow Redis's clock; their burst is their rate. All other figures are of the steady part.
- *Ops* are exchanges with Redis, one key each. *Messages* carry them; heartbeats are not counted. *Waits* are decisions that took any time.
- *Spread*: the acceptance is the admitted share of the calls. The processes form ten tenths, in the order of their demand. Spread is the largest acceptance of a tenth less the smallest.
- *False denials*: denied calls that the central limiter would have admitted after the same admissions.
- "exact" is the checked model: one central limiter without a network. A real one asks Redis once per decision. Every mode does so if the limit is a log, or a queue without waiting callers.
- "count-and-push" counts locally and pushes every 50 ms, without leases. Its debt is kept, except in a sliding window, whose algorithm forgets the excess.
- *Musts* are the bounds of the scenario file. "3 of 3" means that all hold. Otherwise the cell has each bound that does not hold, with the figure.
`

var columns = []column[Row]{
	{"scenario", func(r Row) string { return r.Scenario }},
	{"kind", func(r Row) string { return r.Kind }},
	{"utilisation, whole", func(r Row) string { return fixed(r.UtilisationWhole, 4) }},
	{"steady", func(r Row) string { return fixed(r.Utilisation, 4) }},
	{"exceedance", func(r Row) string { return fixed(r.Exceedance, 2) }},
	{"of burst", func(r Row) string { return percent(r.ExceedancePart) }},
	{"ops per admission", func(r Row) string { return asked(r, r.OpsPerAdmission) }},
	{"ops per decision", func(r Row) string { return asked(r, r.OpsPerDecision) }},
	{"messages per decision", func(r Row) string { return asked(r, r.MessagesPerDecision) }},
	{"waits", func(r Row) string { return percent(r.Waits) }},
	{"Jain", func(r Row) string { return fixed(r.Jain, 4) }},
	{"spread", func(r Row) string { return fixed(r.Spread, 3) }},
	{"false denials", func(r Row) string { return percent(r.FalseDenials) }},
	{"musts", Row.verdict},
}

// asked formats a figure about calls to Redis. The exact model makes none.
func asked(r Row, x Figure) string {
	if r.Kind == exact {
		return none
	}
	return significant(x)
}

// Markdown returns the page.
func (r *Result) Markdown() string {
	var b strings.Builder
	musts, rows := r.Failed()
	writeHead(&b, "Accuracy of whole fleets, in virtual time", r.Command, r.Versions)
	writeVerdict(&b, musts, rows, len(r.Rows))
	b.WriteString(legend + "\n")
	writeTable(&b, columns, r.Rows, func(r Row) string { return r.Scenario })

	b.WriteString("\n## The scenarios\n\n| scenario | setting |\n|---|---|\n")
	for _, f := range r.Families {
		fmt.Fprintf(&b, "| [%s](../../bench/accuracy/scenarios/%s.txt) | %s: %s |\n", f.Name, f.Name, f.Title, f.Setting())
	}
	if plots := r.Plots(); len(plots) > 0 {
		b.WriteString("\n## The plots\n\n")
		for _, p := range plots {
			fmt.Fprintf(&b, "![%s](%s)\n\n", p.Title, p.File)
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// JSON returns the result for programs.
func (r *Result) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}

// verdict returns the result of the musts.
func (r Row) verdict() string { return verdict(r.Checks, r.Violated) }

// String returns the row in one line, for the log.
func (r Row) String() string {
	return fmt.Sprintf("%s %s: utilisation %s, exceedance %s, %s ops per admission and %s per decision, %s wait, Jain %s, spread %s",
		r.Scenario, r.Kind, fixed(r.Utilisation, 4), fixed(r.Exceedance, 2), significant(r.OpsPerAdmission),
		significant(r.OpsPerDecision), percent(r.Waits), fixed(r.Jain, 4), fixed(r.Spread, 3))
}
