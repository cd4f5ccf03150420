package accuracy

import (
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// The lines around the excerpt in a page.
const (
	excerptFrom = "<!-- make lab: from here -->\n"
	excerptTo   = "<!-- make lab: to here -->\n"
)

// Excerpt returns the table that the documentation of the protocol quotes: the
// fleets in ModeAuto at 1.5 times their limit.
func (r *Result) Excerpt() string {
	var b strings.Builder
	b.WriteString("| fleet | utilisation | exceedance | ops per admission | waits |\n|---|--:|--:|--:|--:|\n")
	for _, row := range r.Rows {
		name, load, _ := strings.Cut(row.Scenario, " ")
		if !strings.HasPrefix(name, "fleet") || load != "×1.5" || row.Kind != "auto" {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name,
			fixed(row.Utilisation, 4), percent(row.ExceedancePart), significant(row.OpsPerAdmission), percent(row.Waits))
	}
	return b.String()
}

// quote replaces the excerpt in a page.
func (r *Result) quote(page string) (string, error) {
	return benchkit.Between(page, excerptFrom, excerptTo, r.Excerpt())
}
