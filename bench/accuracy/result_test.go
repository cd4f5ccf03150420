package accuracy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// made returns a result whose figures are easy to check by hand.
func made(t *testing.T) *Result {
	t.Helper()
	f, err := Rates.Parse("made.txt", `
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
		runs = append(runs, RateRun(c, reports[i]))
	}
	r.Add(runs)
	return r
}

func TestFiguresAreQuotientsOfTheReport(t *testing.T) {
	r := made(t)
	auto := r.Rows[0]
	for what, x := range map[string][2]Figure{
		"utilisation":          {auto.of("utilisation"), 1400.0 / 1500},
		"whole":                {auto.of("utilisation-whole"), 0.9},
		"of burst":             {auto.of("exceedance/burst"), 0.025},
		"ops per admission":    {auto.of("ops/admission"), 300.0 / 1400},
		"ops per decision":     {auto.of("ops/decision"), 300.0 / 4500},
		"ops/process/s":        {auto.of("ops/process/s"), 1},
		"waits":                {auto.of("waits"), 0.01},
		"false denials":        {auto.of("false-denials"), 0.002},
		"spread":               {auto.of("spread"), 0.18},
		"spread of processes":  {auto.of("spread-processes"), 0.19},
		"slowest":              {auto.of("slowest-ms"), 1.5},
		"spread of nobody":     {spread(tenths(nil)), Figure(math.NaN())},
		"a part of nothing":    {per(int64(1), int64(0)), Figure(math.NaN())},
		"spread of three":      {spread(tenths([]float64{0.1, 0.5, 0.2})), 0.4},
		"messages of the made": {r.Rows[1].of("messages/decision"), 3000.0 / 4500},
	} {
		if math.Abs(float64(x[0]-x[1])) > 1e-9 || x[0].known() != x[1].known() {
			t.Errorf("%s: got %v, want %v", what, x[0], x[1])
		}
	}
	if auto.Sources["lease"] != 7 {
		t.Errorf("sources: %v", auto.Sources)
	}
}

func TestMustsThatDoNotHoldAreSeen(t *testing.T) {
	r := made(t)
	if r.Failed() != 3 || r.Rows[1].Failed != 3 {
		t.Errorf("%d musts failed, want ops, Jain and an invariant of count-and-push", r.Failed())
	}
	const bad = "count-and-push ops/admission <= 0.5: 2; * jain >= 0.9: 0.8; violated: a | b"
	for i, want := range []string{"6 of 6", bad, "1 of 1"} {
		if got := r.Rows[i].Musts; got != want {
			t.Errorf("row %d: %q, want %q", i, got, want)
		}
	}
	const setting = "made up: processes 20, limit 100/s burst 20, load steady 3, span 20s, steady 5s"
	if got, want := r.Scenarios["made"], setting; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBoundsOfOtherThings(t *testing.T) {
	c := Case{
		Family: &Family{Lab: Rates},
		Rate:   fleet.Scenario{Processes: 10, Limit: hybridlimit.TokenBucket(10, time.Hour, 10240), Overshoot: 0.5},
	}
	other := []Run{{Case: Case{Kind: "exact"}, Figures: Figures{"exceedance": 7}}}
	for _, b := range []struct {
		must     Must
		scenario []Run
		bound    float64
	}{
		{Must{Metric: "exceedance", Factor: 3}, nil, 3},
		{Must{Metric: "exceedance", Factor: 0.5, Of: "burst"}, nil, 5120},
		{Must{Metric: "exceedance", Factor: 1, Of: "budget"}, nil, c.budget()},
		{Must{Metric: "exceedance", Factor: 4, Of: "floor"}, nil, 400},
		{Must{Metric: "exceedance", Factor: 2, Of: "exact"}, other, 14},
		{Must{Metric: "exceedance", Factor: 2, Of: "exact"}, nil, math.NaN()},
	} {
		for _, atMost := range []bool{true, false} {
			b.must.AtMost = atMost
			c.Family.Musts = []Must{b.must}
			for _, off := range []float64{-1, 0, 1} {
				run := Run{Case: c, Figures: Figures{"exceedance": Figure(b.bound + off)}}
				bound := b.must.bound(c, b.scenario)
				_, failed := run.judge(b.scenario)
				want := !math.IsNaN(b.bound) && (off == 0 || atMost == (off < 0))
				if (failed == 0) != want || math.Abs(bound-b.bound) > 1e-6 {
					t.Errorf("%+v, %+v off: %d failed, bound %v", b.must, off, failed, bound)
				}
			}
		}
	}
	c.Rate.Overshoot = -1
	if c.budget() != c.microsecond() || math.Abs(c.microsecond()-10.0/3600e6) > 1e-15 {
		t.Errorf("without overshoot: budget %v, microsecond %v", c.budget(), c.microsecond())
	}
}

func TestJSONHasTheRowsAndNoNaN(t *testing.T) {
	back := writeAndRead(t, made(t), filepath.Join(t.TempDir(), "results.json"))
	if back.Command != "make lab" || back.Versions["Go"] != "go1" || back.Scenarios["made"] == "" {
		t.Errorf("%+v", back)
	}
	first, last := back.Rows[0], back.Rows[2]
	if first.of("utilisation") != 0.9333 || first.Sources["lease"] != 7 || last.of("spread").known() || first.of("critical").known() {
		t.Errorf("%+v", back.Rows)
	}
}

// TestFiguresInJSON checks the rounding.
func TestFiguresInJSON(t *testing.T) {
	text, err := json.Marshal(Figures{
		"a": 12345678, "b": 0.0123456789, "c": Figure(math.NaN()), "d": 123.45678, "e": Figure(math.Inf(1)), "f": 0,
		"spread": 0.12345,
	})
	if want := `{"a":12345678,"b":0.0123457,"d":123.457,"f":0,"spread":0.123}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

func TestSameResultSameBytes(t *testing.T) {
	render := func() string {
		r, file := made(t), filepath.Join(t.TempDir(), "results.json")
		if err := r.Write(file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s%s", text, r.Plots()[0].SVG())
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

func TestFleets(t *testing.T) {
	page := fleets(results{rates: &Result{Rows: []Row{
		{Scenario: "fleet9 ×1.5", Kind: "auto 0.05", Figures: Figures{"utilisation": 0.5}},
		{Scenario: "fleet9 ×1.5", Kind: "strict"},
		{Scenario: "fleet9 ×2", Kind: "auto"},
		{Scenario: "ramp ×1.5", Kind: "auto"},
	}}})
	const want = "|---|--:|--:|--:|--:|\n| fleet9 | 0.5 | – | – | – |\n"
	if !strings.HasSuffix(page, want) {
		t.Errorf("%q does not end with %q", page, want)
	}
}

// TestQuote checks that other figures in a page are found, and written.
func TestQuote(t *testing.T) {
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		file = filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{RatesFile, CallsFile, RegionsFile, HotFile} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		write(file, string(text))
	}
	pages := map[string]string{}
	for _, q := range quotes {
		pages[q.file] += fmt.Sprintf("before\n<!-- %[1]s: from here -->\n| old |\n<!-- %[1]s: to here -->\nafter\n", q.command)
	}
	for file, text := range pages {
		write(file, text)
	}
	for i, write := range []bool{false, true, false} {
		stale, err := Quote(dir, write)
		if want := []int{len(quotes), len(quotes), 0}[i]; err != nil || len(stale) != want {
			t.Errorf("step %d: %q, %v, want %d pages", i, stale, err, want)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, quotes[1].file))
	if err != nil || !strings.HasPrefix(string(text), "before\n<!-- ") || !strings.HasSuffix(string(text), " -->\nafter\n") ||
		strings.Contains(string(text), "old") || strings.Count(string(text), "\n| fleet") < 6 {
		t.Errorf("%v:\n%s", err, text)
	}
	write(quotes[0].file, "a page without the markers")
	if _, err := Quote(dir, true); err == nil {
		t.Error("no error for a page without the markers")
	}
}

// TestMustAtAFactor checks which rows a must with a kind and a factor is for.
func TestMustAtAFactor(t *testing.T) {
	f, err := Rates.Parse("f.txt",
		"processes 1\nlimit 10/s\nload steady 0.1 1\nspan 1s\nkinds auto strict\nmust auto waits <= 5% at 0.1\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Cases() {
		if got, want := f.Musts[0].isFor(c), c.Rate.Name == "f ×0.1 auto"; got != want {
			t.Errorf("isFor(%s) = %v, want %v", c.Rate.Name, got, want)
		}
	}
}
