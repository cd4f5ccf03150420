package accuracy

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/hybridlimit/hybridlimit/internal/fleet"
)

// Figure is a measured number. NaN says that there is none, such as a quotient
// by nothing; JSON has null for it.
type Figure float64

// MarshalJSON rounds to five significant digits: two runs of one scenario may
// differ in how ties fall, and more digits than that would only say so.
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

// per is the quotient, NaN if there is nothing to divide by.
func per[A, B int64 | float64 | Figure](a A, b B) Figure {
	if b == 0 {
		return Figure(math.NaN())
	}
	return Figure(float64(a) / float64(b))
}

// Row is what one run came to. Unless they say otherwise, figures are of the
// steady part.
type Row struct {
	Scenario string `json:"scenario"`
	Kind     string `json:"kind"`

	Calls    int64 `json:"calls"`
	Admitted int64 `json:"admitted"`
	Units    int64 `json:"units"`
	Central  int64 `json:"central_units"` // what one central bucket admits

	Utilisation      Figure `json:"utilisation"`
	UtilisationWhole Figure `json:"utilisation_whole"` // of the whole run: units over the exact row's
	Exceedance       Figure `json:"exceedance"`        // of the whole run, in units
	ExceedancePart   Figure `json:"exceedance_of_burst"`

	Ops                 int64  `json:"ops"`
	Messages            int64  `json:"messages"`
	Heartbeats          int64  `json:"heartbeats"`
	OpsPerAdmission     Figure `json:"ops_per_admission"`
	OpsPerDecision      Figure `json:"ops_per_decision"`
	OpsPerProcessSecond Figure `json:"ops_per_process_second"`
	MessagesPerDecision Figure `json:"messages_per_decision"`

	Waits   Figure `json:"waits"`      // decisions that waited, of all
	Slowest Figure `json:"slowest_ms"` // decision

	Jain         Figure `json:"jain"`
	Spread       Figure `json:"acceptance_spread"`           // see spread
	SpreadEach   Figure `json:"acceptance_spread_processes"` // largest less smallest of single processes
	FalseDenials Figure `json:"false_denials"`               // of all decisions

	Sources  map[string]int64 `json:"sources"` // decisions of the whole run
	Violated []string         `json:"violated,omitempty"`
	Checks   []Check          `json:"checks,omitempty"`
}

// NewRow takes the figures of a run; UtilisationWhole and Checks need the
// other rows, see [Result.Add].
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
	for source, n := range r.BySource {
		row.Sources[source.String()] = n
	}
	return row
}

// admitted is the units of the whole run, from its timeline.
func admitted(r fleet.Report) (units int64) {
	for _, s := range r.Timeline {
		units += s.Admitted
	}
	return units
}

// spread is the largest less the smallest of the acceptances.
func spread(acceptance []float64) Figure {
	if len(acceptance) == 0 {
		return Figure(math.NaN())
	}
	return Figure(slices.Max(acceptance) - slices.Min(acceptance))
}

// tenths are the means of tenths of the processes, in order: with a skewed
// load the first tenth asks most. A process with forty calls accepts two
// thirds of them give or take seven points by chance alone, in the fairest of
// buckets; a tenth of a hundred such processes, give or take two.
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

// failed counts the musts that do not hold; an invariant of the simulator
// counts as one.
func (r Row) failed() int {
	n := len(r.Violated)
	for _, c := range r.Checks {
		if !c.Passed {
			n++
		}
	}
	return n
}
