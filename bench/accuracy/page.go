package accuracy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// column is a column of a table of rows.
type column[R any] struct {
	head string
	cell func(R) string
}

// writeHead writes the title of a page, and the command and the versions that wrote it.
func writeHead(b *strings.Builder, title, command string, versions map[string]string) {
	fmt.Fprintf(b, "# %s\n\nWritten by `%s`; do not edit. ", title, command)
	for i, name := range slices.Sorted(maps.Keys(versions)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%s %s", name, versions[name])
	}
	b.WriteString(". The clock is virtual, so the speed of the machine has no effect.\n\n")
}

// writeVerdict writes the number of musts that do not hold.
func writeVerdict(b *strings.Builder, musts, bad, rows int) {
	if musts > 0 {
		fmt.Fprintf(b, "**%d musts do not hold, in %d of %d rows.**\n\n", musts, bad, rows)
	} else {
		fmt.Fprintf(b, "All musts hold, in %d rows.\n\n", rows)
	}
}

// writeTable writes a table. The first column has the scenario, once for all its rows. The second and the last one are words.
func writeTable[R any](b *strings.Builder, columns []column[R], rows []R, scenario func(R) string) {
	heads := make([]string, len(columns))
	for i, c := range columns {
		heads[i] = c.head
	}
	b.WriteString("| " + strings.Join(heads, " | ") + " |\n|---|---|" + strings.Repeat("--:|", len(columns)-3) + "---|\n")
	for i, row := range rows {
		cells := make([]string, len(columns))
		for j, c := range columns {
			cells[j] = c.cell(row)
		}
		if i > 0 && scenario(rows[i-1]) == scenario(row) {
			cells[0] = ""
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
}

// verdict returns the result of the musts. A must that does not hold is in
// bold, with the figure.
func verdict(checks []Check, violated []string) string {
	var bad []string
	for _, c := range checks {
		if !c.Passed {
			bad = append(bad, fmt.Sprintf("**%s: %s**", c.Must, significant(c.Value)))
		}
	}
	for _, v := range violated {
		bad = append(bad, "**violated: "+strings.ReplaceAll(strings.ReplaceAll(v, "|", "/"), "\n", " ")+"**")
	}
	switch {
	case len(bad) > 0:
		return strings.Join(bad, "; ")
	case len(checks) == 0:
		return none
	}
	return fmt.Sprintf("%d of %d", len(checks), len(checks))
}

// failed returns the number of musts that do not hold. A violated invariant of
// the simulator counts as one.
func failed(checks []Check, violated []string) int {
	n := len(violated)
	for _, c := range checks {
		if !c.Passed {
			n++
		}
	}
	return n
}

// none stands for a missing figure.
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

// significant formats x with three significant digits, without an exponent.
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
