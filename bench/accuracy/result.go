package accuracy

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// Run is a case with the report of the simulator.
type Run struct {
	Case   Case
	Report fleet.Report
}

// Result is the result of a run of the lab.
type Result struct {
	Command  string            `json:"command"`
	Versions map[string]string `json:"versions"`
	Rows     []Row             `json:"rows"`

	Families []*Family `json:"-"` // the families of the rows
	runs     []Run
}

// Add adds the runs of one scenario, in the order of the table, and compares
// their rows with the musts of the family.
func (r *Result) Add(runs []Run) {
	rows := make([]Row, len(runs))
	central := int64(0)
	for i, run := range runs {
		if f := run.Case.Family; !slices.Contains(r.Families, f) {
			r.Families = append(r.Families, f)
		}
		rows[i] = NewRow(run.Case, run.Report)
		if run.Case.Kind == exact {
			central = admitted(run.Report)
		}
	}
	for i, run := range runs {
		rows[i].UtilisationWhole = per(admitted(run.Report), central)
	}
	find := func(kind string) (Row, bool) {
		for _, row := range rows {
			if row.Kind == kind {
				return row, true
			}
		}
		return Row{}, false
	}
	for i, run := range runs {
		for _, m := range run.Case.Family.Musts {
			if m.holds(run.Case) {
				rows[i].Checks = append(rows[i].Checks, m.check(run.Case, rows[i], find))
			}
		}
	}
	r.Rows = append(r.Rows, rows...)
	r.runs = append(r.runs, runs...)
}

// Failed returns the number of musts and invariants that do not hold, and the
// number of rows with them.
func (r *Result) Failed() (musts, rows int) {
	for _, row := range r.Rows {
		if n := row.failed(); n > 0 {
			musts += n
			rows++
		}
	}
	return musts, rows
}
