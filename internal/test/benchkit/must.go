package benchkit

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bound is a limit for a figure.
type Bound struct {
	Value  float64
	AtMost bool // false: at least
	Slack  float64
}

// AtMost returns a bound without slack.
func AtMost(v float64) Bound { return Bound{Value: v, AtMost: true} }

// AtLeast returns a bound without slack.
func AtLeast(v float64) Bound { return Bound{Value: v} }

// Holds reports whether a figure is within the bound. NaN never is.
func (b Bound) Holds(got float64) bool {
	if b.AtMost {
		return got <= b.Value+b.Slack
	}
	return got >= b.Value-b.Slack
}

// Sign returns "≤" or "≥".
func (b Bound) Sign() string {
	if b.AtMost {
		return "≤"
	}
	return "≥"
}

func (b Bound) String() string { return fmt.Sprintf("%s %g", b.Sign(), b.Value) }

// Must is a required figure.
type Must struct {
	What  string
	Bound Bound

	// Where the figure is: in which row, and under which name. If To is set, it is divided by that of the row with this
	// name. Without a table, Got is given.
	Table, Load, Name, To, Figure string
	Floor                         bool // only whole units count

	Got float64
}

// Reached reports whether the figure is within its bound.
func (m Must) Reached() bool { return m.Bound.Holds(m.Got) }

// Got returns the required figures of the measured loads.
func (r *Results) Got(musts ...Must) (all []Must) {
	for _, m := range musts {
		if m.Table != "" {
			if !slices.ContainsFunc(r.Rows, func(row *Row) bool { return row.Table == m.Table && row.Load == m.Load }) {
				continue
			}
			m.Got = r.Row(m.Table, m.Load, m.Name).Median(m.Figure)
			if m.To != "" {
				m.Got /= r.Row(m.Table, m.Load, m.To).Median(m.Figure)
			}
			if m.Floor {
				m.Got = math.Floor(m.Got)
			}
		}
		all = append(all, m)
	}
	return all
}

// Missed returns an error for each required figure that is not within its bound.
func Missed(musts []Must) error {
	var errs []error
	for _, m := range musts {
		if !m.Reached() {
			errs = append(errs, fmt.Errorf("missed: %s: %.4g, want %v", m.What, m.Got, m.Bound))
		}
	}
	return errors.Join(errs...)
}
