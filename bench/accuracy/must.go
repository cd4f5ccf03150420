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
	Kinds  []string // the kinds of the rows; empty: all kinds
	Metric string   // a key of metrics or callMetrics
	AtMost bool     // false: at least
	Factor float64  // the bound is Factor times Of
	Of     string   // "": the bound is Factor; else a key of scales, or a kind, which stands for its figure
	At     float64  // the load factor of the rows; 0: all factors
	Line   int      // line number in the file
}

// metrics has the figures that a must can name.
var metrics = map[string]func(Row) Figure{
	"utilisation":       func(r Row) Figure { return r.Utilisation },
	"utilisation-whole": func(r Row) Figure { return r.UtilisationWhole },
	"critical":          func(r Row) Figure { return r.Critical },
	"exceedance":        func(r Row) Figure { return r.Exceedance },
	"ops/admission":     func(r Row) Figure { return r.OpsPerAdmission },
	"ops/decision":      func(r Row) Figure { return r.OpsPerDecision },
	"ops/process/s":     func(r Row) Figure { return r.OpsPerProcessSecond },
	"messages":          func(r Row) Figure { return Figure(r.Messages) },
	"messages/decision": func(r Row) Figure { return r.MessagesPerDecision },
	"waits":             func(r Row) Figure { return r.Waits },
	"jain":              func(r Row) Figure { return r.Jain },
	"spread":            func(r Row) Figure { return r.Spread },
	"false-denials":     func(r Row) Figure { return r.FalseDenials },
}

// scales has the quantities of a case that a bound can be relative to.
var scales = map[string]func(Case) float64{
	"burst":       Case.burst,
	"budget":      Case.budget,
	"microsecond": Case.microsecond,
	"floor":       Case.floor,
}

// slack is the tolerance of a bound, for the rounding errors of sums.
const slack = 1e-9

// Check is the result of a must.
type Check struct {
	Must   string `json:"must"`
	Bound  Figure `json:"bound"`
	Value  Figure `json:"value"`
	Passed bool   `json:"passed"`
}

// String returns the must as in the file, without its kinds.
func (m Must) String() string {
	sign := ">="
	if m.AtMost {
		sign = "<="
	}
	s := fmt.Sprintf("%s %s %s", m.Metric, sign, number(m.Factor))
	if m.Of != "" {
		s += " of " + m.Of
	}
	if m.At != 0 {
		s += " at " + number(m.At)
	}
	return s
}

// holds reports whether the must applies to the row of a case. A family that
// runs auto with several overshoots calls the kinds "auto 0.5" and so on.
func (m Must) holds(c Case) bool {
	word, _, _ := strings.Cut(c.Kind, " ")
	return m.isFor(word, c.Run.Load.Factor)
}

// isFor reports whether the must applies to the rows of a kind at a load factor.
func (m Must) isFor(kind string, factor float64) bool {
	return (len(m.Kinds) == 0 || slices.Contains(m.Kinds, kind)) && (m.At == 0 || m.At == factor)
}

// check compares a row with the must. of finds the row of another kind in the
// same scenario.
func (m Must) check(c Case, r Row, of func(kind string) (Row, bool)) Check {
	bound := m.Factor
	if scale, ok := scales[m.Of]; ok {
		bound *= scale(c)
	} else if m.Of != "" {
		other, ok := of(m.Of)
		if ok {
			bound *= float64(metrics[m.Metric](other))
		} else {
			bound = math.NaN()
		}
	}
	return m.judge(float64(metrics[m.Metric](r)), bound)
}

// judge compares a figure with a bound. NaN does not pass.
func (m Must) judge(value, bound float64) Check {
	passed := benchkit.Bound{Value: bound, AtMost: m.AtMost, Slack: slack}.Holds(value)
	return Check{Must: m.String(), Bound: Figure(bound), Value: Figure(value), Passed: passed}
}
