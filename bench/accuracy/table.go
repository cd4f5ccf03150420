package accuracy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/benchkit"
)

// legend explains the table's columns.
const legend = `- Utilisation is the units admitted over those that one central limiter of the same algorithm admits of the same calls: of the whole run, and of its steady part.
- Exceedance is the largest excess of any key over what the algorithm promises, in the whole run: of a bucket over burst + rate·t in any interval; of fixed windows over rate·m in any m in a row; of a sliding window's estimate, and of the units in a log, over the rate; of a queue over its length or, as it leaves, over the rate. Windows and logs are those of Redis's clock; their burst is their rate. The other figures are of the steady part.
- Ops are what Redis is asked, one key each; messages carry them, heartbeats not counted. Waits are the decisions that took any time.
- Spread is the largest less the smallest acceptance (admitted of asked) of the ten tenths of the processes, in the order of their demand.
- False denials are those that the central limiter, fed with what was admitted, would have admitted.
- "exact" is one central limiter without a network, the checked model; the real one asks Redis once a decision, as every mode does where a log is the limit, and where a queue is that nobody waits in.
- "count-and-push" counts locally and pushes each 50 ms, without leases; its debt is kept, but that of a sliding window, of which the algorithm forgets the excess.
- Musts are the bounds of the scenario file: "3 of 3" hold, or each that does not, with the figure found.
`

// column is one of the table's.
type column struct {
	head string
	cell func(Row) string
}

var columns = []column{
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
	{"musts", verdict},
}

// asked is a figure of what Redis is asked, which the model is not.
func asked(r Row, x Figure) string {
	if r.Kind == exact {
		return none
	}
	return significant(x)
}

// Markdown is the result as a page.
func (r *Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Accuracy of whole fleets, in virtual time\n\nWritten by `%s`; do not edit. ", r.Command)
	for i, name := range slices.Sorted(maps.Keys(r.Versions)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", name, r.Versions[name])
	}
	b.WriteString(". The clock is virtual: the machine does not matter.\n\n")
	if musts, rows := r.Failed(); musts > 0 {
		fmt.Fprintf(&b, "**%d musts do not hold, in %d of %d rows.**\n\n", musts, rows, len(r.Rows))
	} else {
		fmt.Fprintf(&b, "All musts hold, in %d rows.\n\n", len(r.Rows))
	}
	b.WriteString(legend + "\n")

	heads := make([]string, len(columns))
	for i, c := range columns {
		heads[i] = c.head
	}
	b.WriteString("| " + strings.Join(heads, " | ") + " |\n|---|---|" + strings.Repeat("--:|", len(columns)-3) + "---|\n")
	for i, row := range r.Rows {
		cells := make([]string, len(columns))
		for j, c := range columns {
			cells[j] = c.cell(row)
		}
		if i > 0 && r.Rows[i-1].Scenario == row.Scenario {
			cells[0] = ""
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}

	b.WriteString("\n## The scenarios\n\n| scenario | what it is |\n|---|---|\n")
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

// JSON is the result for programs.
func (r *Result) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}

// verdict says what the musts came to: what does not hold is in bold, with the
// figure found.
func verdict(r Row) string {
	var bad []string
	for _, c := range r.Checks {
		if !c.Passed {
			bad = append(bad, fmt.Sprintf("**%s: %s**", c.Must, significant(c.Value)))
		}
	}
	for _, v := range r.Violated {
		bad = append(bad, "**violated: "+strings.ReplaceAll(strings.ReplaceAll(v, "|", "/"), "\n", " ")+"**")
	}
	switch {
	case len(bad) > 0:
		return strings.Join(bad, "; ")
	case len(r.Checks) == 0:
		return none
	}
	return fmt.Sprintf("%d of %d", len(r.Checks), len(r.Checks))
}

// String is the row in a line, for those who wait for the table.
func (r Row) String() string {
	return fmt.Sprintf("%s %s: utilisation %s, exceedance %s, %s ops per admission and %s per decision, %s wait, Jain %s, spread %s",
		r.Scenario, r.Kind, fixed(r.Utilisation, 4), fixed(r.Exceedance, 2), significant(r.OpsPerAdmission),
		significant(r.OpsPerDecision), percent(r.Waits), fixed(r.Jain, 4), fixed(r.Spread, 3))
}

// none stands for a figure that there is not.
const none = "–"

func fixed(x Figure, places int) string {
	if !x.known() {
		return none
	}
	return strconv.FormatFloat(benchkit.Round(float64(x), places), 'f', -1, 64)
}

func percent(x Figure) string {
	if !x.known() {
		return none
	}
	return fixed(100*x, 2) + " %"
}

// significant shows three significant digits, without an exponent.
func significant(x Figure) string {
	if !x.known() {
		return none
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', 3, 64), 64)
	if err != nil {
		return none
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
