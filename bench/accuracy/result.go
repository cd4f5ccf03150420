package accuracy

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// Figure is a measured number. NaN means that there is none, such as a division by zero.
type Figure float64

// Figures has the figures of a run by name. docs/lab/README.md explains the names.
type Figures map[string]Figure

// decimals has the decimals of figures in the files. Counts are whole, and other figures have six significant digits.
// Two runs may differ in the order of simultaneous events, so further digits have no meaning.
var decimals = map[string]int{
	"utilisation": 4, "utilisation-whole": 4, "exceedance": 2, "exceedance/burst": 4, "critical": 4, "waits": 4, "jain": 4, "low": 3, "high": 3, "without": 4,
	"spread": 3, "spread-processes": 3, "false-denials": 4, "share": 6, "at-once": 3, "denied": 4,
}

// MarshalJSON rounds, and leaves out what is NaN.
func (f Figures) MarshalJSON() ([]byte, error) {
	rounded := map[string]float64{}
	for name, x := range f {
		y := float64(x)
		places, fixed := decimals[name]
		switch {
		case !x.known():
			continue
		case fixed:
			y = benchkit.Round(y, places)
		case y != math.Trunc(y):
			y, _ = strconv.ParseFloat(strconv.FormatFloat(y, 'g', 6, 64), 64)
		}
		rounded[name] = y
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

// Run is a case with its results.
type Run struct {
	Case     Case
	Figures  Figures
	Sources  map[string]int64 // decisions of the whole run; of Rates
	Violated []string         // invariants of the simulator
	units    int64            // admitted: those that the quotient of the lab divides
	timeline []fleet.Sample
}

// RateRun returns the run of a case of Rates.
func RateRun(c Case, r fleet.Report) Run {
	run := Run{Case: c, Figures: rateFigures(c, r), Sources: map[string]int64{}, Violated: r.Violated}
	run.timeline = r.Timeline
	for source, n := range r.BySource {
		run.Sources[source.String()] = n
	}
	for _, s := range r.Timeline {
		run.units += s.Admitted
	}
	return run
}

// CallRun returns the run of a case of Calls.
func CallRun(c Case, r fleet.CallReport) Run {
	run := Run{Case: c, Figures: callFigures(c, r), units: r.Admitted}
	if r.Open != 0 {
		run.Violated = []string{"calls were never decided"}
	}
	return run
}

func rateFigures(c Case, r fleet.Report) Figures {
	return Figures{
		"calls":             Figure(r.Calls),
		"admitted":          Figure(r.Admitted),
		"units":             Figure(r.Units),
		"central-units":     Figure(r.Central),
		"utilisation":       Figure(r.Utilisation),
		"utilisation-whole": Figure(math.NaN()), // see Add
		"exceedance":        Figure(r.Exceedance),
		"exceedance/burst":  per(r.Exceedance, c.burst()),
		"ops":               Figure(r.Ops),
		"messages":          Figure(r.Messages),
		"heartbeats":        Figure(r.Heartbeats),
		"ops/admission":     per(r.Ops, r.Admitted),
		"ops/decision":      per(r.Ops, r.Calls),
		"ops/process/s":     per(r.Ops, float64(c.Rate.Processes)*(c.Rate.Span-c.Rate.Steady).Seconds()),
		"messages/decision": per(r.Messages, r.Calls),
		"critical":          per(r.CriticalAdmitted, r.CriticalCalls),
		"waits":             per(r.Waited, r.Calls),
		"slowest-ms":        Figure(r.Slowest.Seconds() * 1e3),
		"jain":              Figure(r.Jain),
		"spread":            spread(tenths(r.Acceptance)),
		"spread-processes":  spread(r.Acceptance),
		"false-denials":     per(r.FalseDenials, r.Calls),
	}
}

func callFigures(c Case, r fleet.CallReport) Figures {
	return Figures{
		"calls":              Figure(r.Calls),
		"admitted":           Figure(r.Admitted),
		"messages":           Figure(r.Messages),
		"renewals":           Figure(r.Renewals),
		"ops":                Figure(r.Ops),
		"share":              Figure(math.NaN()), // see Add
		"messages/admission": per(r.Messages+r.Renewals, r.Admitted),
		"bare/admission":     per(r.Messages, r.Admitted),
		"ops/admission":      per(r.Ops, r.Admitted),
		"at-once":            per(r.Most, c.Call.Limit),
		"waits":              per(r.Waited, r.Admitted),
		"wait-p50":           Figure(r.Half.Seconds() * 1e3),
		"wait-p99":           Figure(r.Slow.Seconds() * 1e3),
		"denied":             per(r.Calls-r.Admitted, r.Calls),
	}
}

// RegionRun returns the run of a case of Regions.
func RegionRun(c Case, r fleet.RegionReport) Run {
	return Run{Case: c, Figures: regionFigures(c, r), units: r.Admitted}
}

func regionFigures(c Case, r fleet.RegionReport) Figures {
	return Figures{
		"calls":            Figure(r.Calls),
		"admitted":         Figure(r.Admitted),
		"share":            Figure(math.NaN()), // see Add
		"exceedance":       Figure(r.Excess),
		"exceedance/burst": per(r.Excess, c.burst()),
		"away/s":           Figure(r.Away),
		"waits":            per(r.Waited, r.Calls),
		"slowest-ms":       Figure(r.Slowest.Seconds() * 1e3),
		"denied":           per(r.Calls-r.Admitted, r.Calls),
		"fallback":         Figure(r.Fallback),
	}
}

// HotRun returns the run of a case of Hot.
func HotRun(c Case, r fleet.HotReport) Run {
	run := Run{Case: c, Figures: hotFigures(c, r), units: r.Admitted}
	for i, n := range r.Tenths[:min(len(r.Tenths), int(c.Hot.Span/fleet.SampleEvery))] {
		run.timeline = append(run.timeline, fleet.Sample{At: time.Duration(i) * fleet.SampleEvery, Admitted: n})
	}
	return run
}

func hotFigures(c Case, r fleet.HotReport) Figures {
	return Figures{
		"calls":            Figure(r.Calls),
		"admitted":         Figure(r.Admitted),
		"share":            Figure(math.NaN()), // see Add
		"exceedance":       Figure(r.Excess),
		"exceedance/burst": per(r.Excess, c.burst()),
		"ops":              Figure(r.Ops),
		"ops/process/s":    per(r.Ops, float64(r.Processes)*r.Seconds),
		"peak":             Figure(r.Peak),
		"low":              Figure(r.Low),
		"high":             Figure(r.High),
		"jain":             Figure(r.Jain),
		"spread":           spread(tenths(r.Acceptance)),
		"without":          per(r.Away, r.AwayOf),
		"largest-part":     largestPart(r.OpsOf),
	}
}

// largestPart returns the part of all ops that the busiest part of a split key has.
func largestPart(ops []int64) Figure {
	if len(ops) < 2 {
		return Figure(math.NaN())
	}
	var sum int64
	for _, n := range ops {
		sum += n
	}
	return per(slices.Max(ops), sum)
}

// spread returns the largest acceptance less the smallest.
func spread(acceptance []float64) Figure {
	if len(acceptance) == 0 {
		return Figure(math.NaN())
	}
	return Figure(slices.Max(acceptance) - slices.Min(acceptance))
}

// tenths returns the mean acceptance of each tenth of the processes, in order. Single processes differ by chance:
// one that accepts two thirds of forty calls varies by ±7 percentage points even in a perfectly fair bucket. A tenth
// of a hundred such processes varies by ±2.
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

// Row has the figures of a run, as in the file.
type Row struct {
	Scenario string           `json:"scenario"`
	Kind     string           `json:"kind"`
	Figures  Figures          `json:"figures"`
	Sources  map[string]int64 `json:"sources,omitempty"`
	Musts    string           `json:"musts"`            // "3 of 3" hold, or those that do not
	Failed   int              `json:"failed,omitempty"` // number of musts and invariants that do not hold
}

// of returns a figure, or NaN if the row has none.
func (r Row) of(name string) Figure {
	if x, ok := r.Figures[name]; ok {
		return x
	}
	return Figure(math.NaN())
}

// Result is the result of a lab.
type Result struct {
	Command   string            `json:"command"`
	Versions  map[string]string `json:"versions"`
	Scenarios map[string]string `json:"scenarios"` // title and setting, by name of the file
	Rows      []Row             `json:"rows"`

	runs []Run
}

// Add adds the runs of one scenario, and compares them with the musts of their family.
func (r *Result) Add(runs []Run) {
	for _, run := range runs {
		lab, central := run.Case.Family.Lab, int64(0)
		if i := slices.IndexFunc(runs, func(r Run) bool { return r.Case.Kind == lab.central }); i >= 0 {
			central = runs[i].units
		}
		run.Figures[lab.quotient] = per(run.units, central)
	}
	for _, run := range runs {
		if r.Scenarios == nil {
			r.Scenarios = map[string]string{}
		}
		r.Scenarios[run.Case.Family.Name] = run.Case.Family.Title + ": " + run.Case.Family.Setting
		row := Row{Scenario: run.Case.Scenario, Kind: run.Case.Kind, Figures: run.Figures, Sources: run.Sources}
		row.Musts, row.Failed = run.judge(runs)
		r.Rows = append(r.Rows, row)
	}
	r.runs = append(r.runs, runs...)
}

// Failed returns the number of musts and invariants that do not hold.
func (r *Result) Failed() (n int) {
	for _, row := range r.Rows {
		n += row.Failed
	}
	return n
}

// Write writes a file with a line for each row, and the plots beside it.
func (r *Result) Write(file string) error {
	head := *r
	head.Rows = []Row{}
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	lines := make([]string, len(r.Rows))
	for i, row := range r.Rows {
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		lines[i] = "    " + string(line)
	}
	all := strings.TrimSuffix(string(text), "]\n}") + "\n" + strings.Join(lines, ",\n") + "\n  ]\n}\n"
	err = os.WriteFile(file, []byte(all), 0o644)
	for _, p := range r.Plots() {
		err = errors.Join(err, os.WriteFile(filepath.Join(filepath.Dir(file), p.File), p.SVG(), 0o644))
	}
	return err
}

// ReadResult reads a file that Write wrote.
func ReadResult(file string) (*Result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	return r, json.Unmarshal(text, r)
}
