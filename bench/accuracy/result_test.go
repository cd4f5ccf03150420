package accuracy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// made returns a result whose figures are easy to check by hand.
func made(t *testing.T) *Result {
	t.Helper()
	f, err := Parse("made.txt", `
title made up
processes 20
limit 100/s burst 20
load steady 3
span 20s
steady 5s
kinds auto count-and-push exact
plot 3
must auto utilisation >= 0.9
must auto exceedance <= 5% of burst
must auto exceedance <= 1 of budget
must auto messages <= 4 of floor
must auto utilisation-whole >= 80% of exact
must count-and-push ops/admission <= 0.5
must * jain >= 0.9
must count-and-push spread <= 0.2
`)
	if err != nil {
		t.Fatal(err)
	}
	acceptance := make([]float64, 20)
	for i := range acceptance {
		acceptance[i] = 0.2 + 0.01*float64(i) // tenths: 0.205 … 0.385
	}
	timeline := func(units int64) (samples []fleet.Sample) {
		for i := range 200 {
			samples = append(samples, fleet.Sample{At: time.Duration(i) * fleet.SampleEvery, Offered: 30, Admitted: units})
		}
		return samples
	}
	r := &Result{Command: "make lab", Versions: map[string]string{"Go": "go1"}}
	reports := []fleet.Report{
		{
			Calls: 4500, Admitted: 1400, Units: 1400, Central: 1500, Utilisation: 1400.0 / 1500, Exceedance: 0.5,
			Ops: 300, Messages: 0, Waited: 45, FalseDenials: 9, Jain: 0.95, Acceptance: acceptance,
			Slowest: 1500 * time.Microsecond, Timeline: timeline(9),
			BySource: map[hybridlimit.Source]int64{hybridlimit.SourceLease: 7},
		},
		{
			Calls: 4500, Admitted: 1500, Units: 1500, Central: 1500, Utilisation: 1, Exceedance: 13,
			Ops: 3000, Messages: 3000, Jain: 0.8, Acceptance: acceptance, Timeline: timeline(12),
			Violated: []string{"a | b"},
		},
		{Calls: 4500, Admitted: 1500, Units: 1500, Central: 1500, Utilisation: 1, Jain: 1, Timeline: timeline(10)},
	}
	var runs []Run
	for i, c := range f.Cases() {
		runs = append(runs, Run{Case: c, Report: reports[i]})
	}
	r.Add(runs)
	return r
}

func TestFiguresAreQuotientsOfTheReport(t *testing.T) {
	r := made(t)
	auto := r.Rows[0]
	for what, x := range map[string][2]float64{
		"utilisation":          {float64(auto.Utilisation), 1400.0 / 1500},
		"whole":                {float64(auto.UtilisationWhole), 0.9},
		"of burst":             {float64(auto.ExceedancePart), 0.025},
		"ops per admission":    {float64(auto.OpsPerAdmission), 300.0 / 1400},
		"ops per decision":     {float64(auto.OpsPerDecision), 300.0 / 4500},
		"ops/process/s":        {float64(auto.OpsPerProcessSecond), 1},
		"waits":                {float64(auto.Waits), 0.01},
		"false denials":        {float64(auto.FalseDenials), 0.002},
		"spread":               {float64(auto.Spread), 0.18},
		"spread of processes":  {float64(auto.SpreadEach), 0.19},
		"slowest":              {float64(auto.Slowest), 1.5},
		"spread of nobody":     {float64(spread(tenths(nil))), math.NaN()},
		"a part of nothing":    {float64(per(int64(1), int64(0))), math.NaN()},
		"spread of three":      {float64(spread(tenths([]float64{0.1, 0.5, 0.2}))), 0.4},
		"messages of the made": {float64(r.Rows[1].MessagesPerDecision), 3000.0 / 4500},
	} {
		if math.Abs(x[0]-x[1]) > 1e-9 || math.IsNaN(x[0]) != math.IsNaN(x[1]) {
			t.Errorf("%s: got %v, want %v", what, x[0], x[1])
		}
	}
	if auto.Sources["lease"] != 7 {
		t.Errorf("sources: %v", auto.Sources)
	}
}

func TestMustsThatDoNotHoldAreSeen(t *testing.T) {
	r := made(t)
	if musts, rows := r.Failed(); musts != 3 || rows != 1 {
		t.Errorf("%d musts in %d rows failed, want ops, Jain and an invariant of count-and-push", musts, rows)
	}
	if n := len(r.Rows[0].Checks); n != 6 {
		t.Errorf("auto has %d checks, want 6", n)
	}
	page := r.Markdown()
	for _, want := range []string{
		"**3 musts do not hold, in 1 of 3 rows.**",
		"**ops/admission <= 0.5: 2**; **jain >= 0.9: 0.8**; **violated: a / b**",
		"| made ×3 | auto | 0.9 | 0.9333 | 0.5 | 2.5 % | 0.214 | 0.0667 | 0 | 1 % | 0.95 | 0.18 | 0.2 % | 6 of 6 |",
		"|  | exact | 1 | 1 | 0 | 0 % | – | – | – | 0 % | 1 | – | 0 % | 1 of 1 |",
		"Written by `make lab`", "Go go1", "made up: 20 processes, 100 per 1s, burst 20", "![made up, load 3](made.svg)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
}

func TestBoundsOfOtherThings(t *testing.T) {
	c := Case{Run: fleet.Scenario{Processes: 10, Limit: hybridlimit.TokenBucket(10, time.Hour, 10240), Overshoot: 0.5}}
	nobody := func(string) (Row, bool) { return Row{}, false }
	other := func(string) (Row, bool) { return Row{Exceedance: 7}, true }
	for _, b := range []struct {
		must  Must
		find  func(string) (Row, bool)
		bound float64
	}{
		{Must{Metric: "exceedance", Factor: 3}, nobody, 3},
		{Must{Metric: "exceedance", Factor: 0.5, Of: "burst"}, nobody, 5120},
		{Must{Metric: "exceedance", Factor: 1, Of: "budget"}, nobody, c.budget()},
		{Must{Metric: "exceedance", Factor: 4, Of: "floor"}, nobody, 400},
		{Must{Metric: "exceedance", Factor: 2, Of: "exact"}, other, 14},
		{Must{Metric: "exceedance", Factor: 2, Of: "exact"}, nobody, math.NaN()},
	} {
		for _, atMost := range []bool{true, false} {
			b.must.AtMost = atMost
			for _, off := range []float64{-1, 0, 1} {
				got := b.must.check(c, Row{Exceedance: Figure(b.bound + off)}, b.find)
				want := !math.IsNaN(b.bound) && (off == 0 || atMost == (off < 0))
				if got.Passed != want || math.Abs(float64(got.Bound)-b.bound) > 1e-6 {
					t.Errorf("%v, %+v off: %+v", b.must, off, got)
				}
			}
		}
	}
	c.Run.Overshoot = -1
	if c.budget() != c.microsecond() || math.Abs(c.microsecond()-10.0/3600e6) > 1e-15 {
		t.Errorf("without overshoot: budget %v, microsecond %v", c.budget(), c.microsecond())
	}
}

func TestJSONHasTheRowsAndNoNaN(t *testing.T) {
	text, err := made(t).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var back struct{ Rows []map[string]any }
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Rows) != 3 || back.Rows[0]["utilisation"] != 0.93333 || back.Rows[2]["acceptance_spread"] != nil {
		t.Errorf("%s", text)
	}
}

func TestSameResultSameBytes(t *testing.T) {
	render := func() string {
		r := made(t)
		text, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s%s%s", r.Markdown(), text, r.Plots()[0].SVG())
	}
	if a, b := render(), render(); a != b {
		t.Errorf("%s\n\nand then\n\n%s", a, b)
	}
}

func TestPlotDrawsEveryLimiterAndTheLimit(t *testing.T) {
	r := made(t)
	plots := r.Plots()
	if len(plots) != 1 || plots[0].File != "made.svg" {
		t.Fatalf("%+v", plots)
	}
	picture := plots[0].SVG()
	wellFormed(t, picture)
	for _, want := range []string{
		">auto<", ">count-and-push<", ">exact<", ">the limit (100/s; burst 20)<", ">seconds since the load started<", "<title>made up, load 3</title>",
	} {
		if !bytes.Contains(picture, []byte(want)) {
			t.Errorf("%s is not in\n%s", want, picture)
		}
	}
}

// TestLevelAndSpeed checks the curves of a plot. The bucket of 20 with 100 a
// second is full at first, so a limiter that keeps its limit never has a level
// above the burst.
func TestLevelAndSpeed(t *testing.T) {
	samples := []fleet.Sample{{At: 0, Admitted: 30}, {At: fleet.SampleEvery, Admitted: 10}, {At: 2 * fleet.SampleEvery}, {At: 3 * fleet.SampleEvery, Admitted: 5}}
	for i, want := range []point{{0.1, 20}, {0.2, 20}, {0.3, 10}, {0.4, 5}} {
		if got := level(samples, 100)[i]; math.Abs(got.x-want.x) > 1e-9 || math.Abs(got.y-want.y) > 1e-9 {
			t.Errorf("sample %d: level %v, want %v", i, got, want)
		}
	}
	for i, want := range []point{{0.05, 200}, {0.15, 400.0 / 3}} {
		if got := speed(samples)[i]; math.Abs(got.x-want.x) > 1e-9 || math.Abs(got.y-want.y) > 1e-9 {
			t.Errorf("sample %d: speed %v, want %v", i, got, want)
		}
	}
}

func TestNumbersOnAxes(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.25: "0.25", 999: "999", 1000: "1 000", 1234567: "1 234 567"} {
		if got := short(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
	for x, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.2: 2, 4: 5, 7: 10, 2600: 5000} {
		if got := niceStep(x); math.Abs(got-want) > 1e-9 {
			t.Errorf("step of %v: %v, want %v", x, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	r := &Result{Rows: []Row{
		{Scenario: "fleet9 ×1.5", Kind: "auto", Utilisation: 0.5, Waits: 0.25},
		{Scenario: "fleet9 ×1.5", Kind: "deferred"},
		{Scenario: "fleet9 ×2", Kind: "auto"},
		{Scenario: "ramp ×1.5", Kind: "auto"},
	}}
	page, err := r.quote("before\n" + excerptFrom + "| old |\n" + excerptTo + "after\n")
	if err != nil || strings.Count(page, "\n| ") != 2 || !strings.Contains(page, "| fleet9 | 0.5 | 0 % | 0 | 25 % |") ||
		!strings.HasPrefix(page, "before\n") || !strings.HasSuffix(page, "after\n") || strings.Contains(page, "old") {
		t.Errorf("%v:\n%s", err, page)
	}
	if _, err := r.quote("a page without the markers"); err == nil {
		t.Error("no error for a page without the markers")
	}
}

// TestMustAtAFactor checks which rows a must with a kind and a factor is for.
func TestMustAtAFactor(t *testing.T) {
	f, err := Parse("f.txt", "processes 1\nlimit 10/s\nload steady 0.1 1\nspan 1s\nkinds auto strict\nmust auto waits <= 5% at 0.1\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Cases() {
		if got, want := f.Musts[0].holds(c), c.Run.Name == "f ×0.1 auto"; got != want {
			t.Errorf("holds for %s = %v, want %v", c.Run.Name, got, want)
		}
	}
	if got, want := f.Musts[0].String(), "waits <= 0.05 at 0.1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
