package accuracy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// Must is a bound for rows.
type Must struct {
	Text   string   // as in the file
	Kinds  []string // the kinds of the rows; empty: all kinds
	Metric string   // the figure
	AtMost bool     // false: at least
	Factor float64  // the bound is Factor times Of
	Of     string   // "": the bound is Factor; else a key of scales, or a kind, which stands for its figure
	At     float64  // the load factor of the rows; 0: all factors
	Line   int      // line number in the file
}

// isFor reports whether the must applies to the row of a case. A family that runs auto with several
// overshoots calls the kinds "auto 0.5" and so on.
func (m Must) isFor(c Case) bool {
	kind, _, _ := strings.Cut(c.Kind, " ")
	return (len(m.Kinds) == 0 || slices.Contains(m.Kinds, kind)) && (m.At == 0 || m.At == c.Factor)
}

// bound returns the bound for the row of a case. scenario has the runs of its scenario. A bound of a
// kind without a row is NaN.
func (m Must) bound(c Case, scenario []Run) float64 {
	if m.Of == "" {
		return m.Factor
	}
	if scale, ok := c.Family.Lab.scales[m.Of]; ok {
		return m.Factor * scale(c)
	}
	i := slices.IndexFunc(scenario, func(run Run) bool { return run.Case.Kind == m.Of })
	if i < 0 {
		return math.NaN()
	}
	return m.Factor * float64(scenario[i].Figures[m.Metric])
}

// judge compares the figures of a run with the musts of its family. It returns the result for the
// row, and the number of musts and invariants that do not hold.
func (r Run) judge(scenario []Run) (verdict string, failed int) {
	var bad []string
	musts := 0
	for _, m := range r.Case.Family.Musts {
		if !m.isFor(r.Case) {
			continue
		}
		musts++
		// The slack is for the rounding errors of sums.
		value, bound := r.Figures[m.Metric], benchkit.Bound{Value: m.bound(r.Case, scenario), AtMost: m.AtMost, Slack: 1e-9}
		if !bound.Holds(float64(value)) {
			bad = append(bad, fmt.Sprintf("%s: %s", m.Text, significant(value)))
		}
	}
	for _, v := range r.Violated {
		bad = append(bad, "violated: "+v)
	}
	switch {
	case len(bad) > 0:
		return strings.Join(bad, "; "), len(bad)
	case musts == 0:
		return none, 0
	}
	return fmt.Sprintf("%d of %d", musts, musts), 0
}
