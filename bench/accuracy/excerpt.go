package accuracy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// The lines around the excerpt in a page.
const (
	excerptFrom = "<!-- make lab: from here -->\n"
	excerptTo   = "<!-- make lab: to here -->\n"
)

// Excerpt returns the table that the documentation of the protocol quotes: the
// fleets in the modes that bound the overshoot, and count-and-push for
// comparison.
func (r *Result) Excerpt() string {
	var b strings.Builder
	b.WriteString("| fleet | load | | utilisation | exceedance | of burst | ops per admission | ops per decision | waits | Jain |\n" +
		"|---|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, row := range r.Rows {
		name, load, _ := strings.Cut(row.Scenario, " ")
		kinds := []string{"auto", "auto 0.05", "strict", "count-and-push"}
		if !strings.HasPrefix(name, "fleet") || !slices.Contains(kinds, row.Kind) {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, load, row.Kind,
			fixed(row.Utilisation, 4), fixed(row.Exceedance, 2), percent(row.ExceedancePart),
			significant(row.OpsPerAdmission), significant(row.OpsPerDecision), percent(row.Waits), fixed(row.Jain, 4))
	}
	return b.String()
}

// quote replaces the excerpt in a page.
func (r *Result) quote(page string) (string, error) {
	return benchkit.Between(page, excerptFrom, excerptTo, r.Excerpt())
}
