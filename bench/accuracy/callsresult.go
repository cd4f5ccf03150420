package accuracy

import (
	"math"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// CallRow has the figures of one run.
type CallRow struct {
	Case CallCase
	Kind string

	Calls, Admitted, Messages, Ops int64

	Share           Figure // of the calls that central admits
	PerAdmission    Figure // messages
	Bare            Figure // messages without renewals
	OpsPerAdmission Figure
	AtOnce          Figure // most calls at once at a key, in calls of the limit
	Waits           Figure // part of the admitted calls
	Half, Slow      Figure // ms; the median and the 99th percentile of their waits
	Denied          Figure // part of the calls
	Violated        []string
	Checks          []Check
}

// callMetrics has the figures that a must of calls in flight can name.
var callMetrics = map[string]func(CallRow) Figure{
	"admitted":           func(r CallRow) Figure { return Figure(r.Admitted) },
	"share":              func(r CallRow) Figure { return r.Share },
	"messages/admission": func(r CallRow) Figure { return r.PerAdmission },
	"bare/admission":     func(r CallRow) Figure { return r.Bare },
	"ops/admission":      func(r CallRow) Figure { return r.OpsPerAdmission },
	"at-once":            func(r CallRow) Figure { return r.AtOnce },
	"waits":              func(r CallRow) Figure { return r.Waits },
	"wait-p50":           func(r CallRow) Figure { return r.Half },
	"wait-p99":           func(r CallRow) Figure { return r.Slow },
	"denied":             func(r CallRow) Figure { return r.Denied },
}

// NewCallRow returns the row of a run without Share and Checks, which need the
// other rows: see [CallResult.Add].
func NewCallRow(c CallCase, r fleet.CallReport) CallRow {
	row := CallRow{
		Case: c, Kind: string(c.Run.Kind), Calls: r.Calls, Admitted: r.Admitted, Messages: r.Messages, Ops: r.Ops,
		Share:           Figure(math.NaN()),
		PerAdmission:    per(r.Messages+r.Renewals, r.Admitted),
		Bare:            per(r.Messages, r.Admitted),
		OpsPerAdmission: per(r.Ops, r.Admitted),
		AtOnce:          per(r.Most, c.Run.Limit),
		Waits:           per(r.Waited, r.Admitted),
		Half:            milliseconds(r.Half),
		Slow:            milliseconds(r.Slow),
		Denied:          per(r.Calls-r.Admitted, r.Calls),
	}
	if r.Open != 0 {
		row.Violated = append(row.Violated, "calls were never decided")
	}
	return row
}

func milliseconds(d time.Duration) Figure { return Figure(d.Seconds() * 1e3) }

func (r CallRow) failed() int { return failed(r.Checks, r.Violated) }

// CallRun is a case with the report of the simulator.
type CallRun struct {
	Case   CallCase
	Report fleet.CallReport
}

// CallResult is the result of a run of the lab of calls in flight.
type CallResult struct {
	Command  string
	Versions map[string]string
	Rows     []CallRow
}

// Add adds the runs of one scenario, in the order of the table, and compares
// their rows with the musts of the family.
func (r *CallResult) Add(runs []CallRun) {
	rows := map[string]*CallRow{}
	first := len(r.Rows)
	for _, run := range runs {
		r.Rows = append(r.Rows, NewCallRow(run.Case, run.Report))
	}
	for i := range r.Rows[first:] {
		row := &r.Rows[first+i]
		rows[row.Kind] = row
	}
	for i := range r.Rows[first:] {
		row := &r.Rows[first+i]
		if central := rows[string(fleet.CentralExact)]; central != nil {
			row.Share = per(row.Admitted, central.Admitted)
		}
	}
	for i := range r.Rows[first:] {
		row := &r.Rows[first+i]
		for _, m := range row.Case.Family.Musts {
			if !m.isFor(row.Kind, row.Case.Run.Load) {
				continue
			}
			figure, bound := callMetrics[m.Metric], m.Factor
			if m.Of != "" {
				bound = math.NaN()
				if other := rows[m.Of]; other != nil {
					bound = m.Factor * float64(figure(*other))
				}
			}
			row.Checks = append(row.Checks, m.judge(float64(figure(*row)), bound))
		}
	}
}

// Failed returns the number of musts that do not hold, and the number of rows
// with them.
func (r *CallResult) Failed() (musts, rows int) {
	for _, row := range r.Rows {
		if n := row.failed(); n > 0 {
			musts += n
			rows++
		}
	}
	return musts, rows
}

// families returns the families of the rows.
func (r *CallResult) families() []*CallFamily {
	var all []*CallFamily
	for _, row := range r.Rows {
		if !slices.Contains(all, row.Case.Family) {
			all = append(all, row.Case.Family)
		}
	}
	return all
}
