package accuracy

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// Figure is a measured number. NaN means that there is none, such as a division
// by zero. It is null in JSON.
type Figure float64

// MarshalJSON rounds to five significant digits. Two runs of a scenario may
// differ in the order of simultaneous events, so further digits have no
// meaning.
func (x Figure) MarshalJSON() ([]byte, error) {
	if !x.known() {
		return []byte("null"), nil
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', 5, 64), 64)
	if err != nil {
		return nil, err
	}
	return json.Marshal(rounded)
}

func (x Figure) known() bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

// per returns a / b, or NaN if b is 0.
func per[A, B int64 | float64 | Figure](a A, b B) Figure {
	if b == 0 {
		return Figure(math.NaN())
	}
	return Figure(float64(a) / float64(b))
}

// Row has the figures of one run. Figures are of the steady part unless noted
// otherwise.
type Row struct {
	Scenario string `json:"scenario"`
	Kind     string `json:"kind"`

	Calls    int64 `json:"calls"`
	Admitted int64 `json:"admitted"`
	Units    int64 `json:"units"`
	Central  int64 `json:"central_units"` // units that one central limiter admits

	Utilisation      Figure `json:"utilisation"`
	UtilisationWhole Figure `json:"utilisation_whole"` // of the whole run: units divided by those of the exact row
	Exceedance       Figure `json:"exceedance"`        // of the whole run, in units
	ExceedancePart   Figure `json:"exceedance_of_burst"`

	Ops                 int64  `json:"ops"`
	Messages            int64  `json:"messages"`
	Heartbeats          int64  `json:"heartbeats"`
	OpsPerAdmission     Figure `json:"ops_per_admission"`
	OpsPerDecision      Figure `json:"ops_per_decision"`
	OpsPerProcessSecond Figure `json:"ops_per_process_second"`
	MessagesPerDecision Figure `json:"messages_per_decision"`

	Critical Figure `json:"critical_admitted,omitempty"` // admitted part of the critical calls; 0: there are none

	Waits   Figure `json:"waits"`      // share of all decisions that waited
	Slowest Figure `json:"slowest_ms"` // slowest decision

	Jain         Figure `json:"jain"`
	Spread       Figure `json:"acceptance_spread"`           // over tenths of the processes
	SpreadEach   Figure `json:"acceptance_spread_processes"` // over single processes
	FalseDenials Figure `json:"false_denials"`               // share of all decisions

	Sources  map[string]int64 `json:"sources"` // decisions of the whole run
	Violated []string         `json:"violated,omitempty"`
	Checks   []Check          `json:"checks,omitempty"`
}

// NewRow returns the row of a run without UtilisationWhole and Checks, which
// need the other rows: see [Result.Add].
func NewRow(c Case, r fleet.Report) Row {
	row := Row{
		Scenario: c.Scenario, Kind: c.Kind,
		Calls: r.Calls, Admitted: r.Admitted, Units: r.Units, Central: r.Central,
		Utilisation:         Figure(r.Utilisation),
		UtilisationWhole:    Figure(math.NaN()),
		Exceedance:          Figure(r.Exceedance),
		ExceedancePart:      per(r.Exceedance, c.burst()),
		Ops:                 r.Ops,
		Messages:            r.Messages,
		Heartbeats:          r.Heartbeats,
		OpsPerAdmission:     per(r.Ops, r.Admitted),
		OpsPerDecision:      per(r.Ops, r.Calls),
		OpsPerProcessSecond: per(r.Ops, float64(c.Run.Processes)*c.steady()),
		MessagesPerDecision: per(r.Messages, r.Calls),
		Waits:               per(r.Waited, r.Calls),
		Slowest:             Figure(r.Slowest.Seconds() * 1e3),
		Jain:                Figure(r.Jain),
		Spread:              spread(tenths(r.Acceptance)),
		SpreadEach:          spread(r.Acceptance),
		FalseDenials:        per(r.FalseDenials, r.Calls),
		Sources:             map[string]int64{},
		Violated:            r.Violated,
	}
	if r.CriticalCalls > 0 {
		row.Critical = per(r.CriticalAdmitted, r.CriticalCalls)
	}
	for source, n := range r.BySource {
		row.Sources[source.String()] = n
	}
	return row
}

// admitted returns the units of the whole run, from its timeline.
func admitted(r fleet.Report) (units int64) {
	for _, s := range r.Timeline {
		units += s.Admitted
	}
	return units
}

// spread returns the largest acceptance less the smallest.
func spread(acceptance []float64) Figure {
	if len(acceptance) == 0 {
		return Figure(math.NaN())
	}
	return Figure(slices.Max(acceptance) - slices.Min(acceptance))
}

// tenths returns the mean acceptance of each tenth of the processes, in order.
// With a skewed load the first tenth asks most. Single processes differ by
// chance: a process with forty calls that accepts two thirds of them varies by
// ±7 percentage points even in a perfectly fair bucket. A tenth of a hundred
// such processes varies by ±2.
func tenths(acceptance []float64) []float64 {
	n := len(acceptance)
	groups := min(n, 10)
	means := make([]float64, groups)
	for g := range groups {
		part := acceptance[g*n/groups : (g+1)*n/groups]
		for _, x := range part {
			means[g] += x / float64(len(part))
		}
	}
	return means
}

// failed returns the number of musts and invariants that do not hold.
func (r Row) failed() int { return failed(r.Checks, r.Violated) }
