package accuracy

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

var (
	lab      = flag.Bool("lab", false, "run all scenarios, as make lab does")
	out      = flag.String("out", "", "directory for the results of -lab; empty: docs/lab, if all scenarios ran")
	revision = flag.String("revision", "", "revision of the code, for the results")
	update   = flag.Bool("update", false, "write the figures of docs/lab into the pages")
)

// TestLab runs every scenario file of a rate, and writes the results.
func TestLab(t *testing.T) { runLab(t, Rates, "scenarios", RatesFile, "make lab") }

// TestLabCalls runs every scenario file of calls in flight, and writes the results.
func TestLabCalls(t *testing.T) { runLab(t, Calls, "calls", CallsFile, "make lab-calls") }

// TestLabRegions runs every scenario file of regions, and writes the results.
func TestLabRegions(t *testing.T) { runLab(t, Regions, "regions", RegionsFile, "make lab-regions") }

// TestLabHot runs every scenario file of a hot key, and writes the results.
func TestLabHot(t *testing.T) { runLab(t, Hot, "hot", HotFile, "make lab-hot") }

// root is the root of the repository.
const root = "../.."

// runLab runs every scenario of a directory. If -run selects some of them, the results go only to the
// log, or to the directory of -out: the files in docs/lab must be of one revision.
func runLab(t *testing.T, l *Lab, scenarios, file, command string) {
	if !*lab {
		t.Skip("takes minutes: " + command)
	}
	families, err := l.Read(os.DirFS(scenarios))
	if err != nil {
		t.Fatal(err)
	}
	runAll(t, families, command, func(result *Result, complete bool) {
		for _, row := range result.Rows {
			if row.Failed > 0 {
				t.Errorf("%s %s: %s", row.Scenario, row.Kind, row.Musts)
			}
		}
		to := filepath.Join(root, file)
		switch {
		case *out != "":
			to = filepath.Join(*out, filepath.Base(file))
		case !complete:
			t.Log("not all scenarios ran, so no file is written")
			return
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), result.Write(to)); err != nil {
			t.Error(err)
		} else if *out == "" {
			if _, err := Quote(root, true); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestPages checks that the pages have the figures of the results. -update writes them.
func TestPages(t *testing.T) {
	stale, err := Quote(root, *update)
	if err != nil {
		t.Fatal(err)
	}
	if len(stale) > 0 && !*update {
		t.Errorf("%q have other figures than docs/lab: cd bench && go test ./accuracy -run TestPages -update", stale)
	}
	pictures, err := filepath.Glob(filepath.Join(root, "docs/lab/*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/lab/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range pictures {
		if !strings.Contains(string(page), "]("+filepath.Base(file)+")") {
			t.Errorf("docs/lab/README.md does not show %s", file)
		}
	}
	families, err := Rates.Read(os.DirFS("scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	hot, err := Hot.Read(os.DirFS("hot"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(families, hot...) {
		if drawn := slices.Contains(pictures, filepath.Join(root, "docs/lab", f.Name+".svg")); drawn != (f.Plot > 0) {
			t.Errorf("%s has a picture: %t", f.Name, drawn)
		}
	}
}

// TestShort runs the tiny scenarios, and checks all files that the lab would write.
func TestShort(t *testing.T) {
	families, err := Rates.Read(os.DirFS("testdata/short"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runAll(t, families, "make lab", func(result *Result, complete bool) {
		if !complete {
			t.Skip("not all scenarios ran")
		}
		for _, row := range writeAndRead(t, result, filepath.Join(dir, "results.json")).Rows {
			sane(t, row)
		}
		if len(result.Plots()) == 0 {
			t.Error("there is no plot")
		}
		for _, p := range result.Plots() {
			picture, err := os.ReadFile(filepath.Join(dir, p.File))
			if err != nil {
				t.Fatal(err)
			}
			wellFormed(t, picture)
		}
	})
}

// TestShortCalls runs the tiny scenarios of calls in flight.
func TestShortCalls(t *testing.T) {
	families, err := Calls.Read(os.DirFS("testdata/calls"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runAll(t, families, "make lab-calls", func(result *Result, _ bool) {
		if result.Failed() > 0 {
			t.Errorf("%d musts do not hold: %+v", result.Failed(), result.Rows)
		}
		for _, row := range writeAndRead(t, result, filepath.Join(dir, "calls.json")).Rows {
			if admitted, share := row.of("admitted"), row.of("share"); !(admitted > 0 && admitted <= row.of("calls")) ||
				!(share > 0.5 && share < 1.2) || !(row.of("at-once") > 0) || (row.of("messages") > 0) != (row.Kind != "central") {
				t.Errorf("%+v", row)
			}
		}
	})
}

// TestShortRegions runs the tiny scenarios of regions.
func TestShortRegions(t *testing.T) {
	families, err := Regions.Read(os.DirFS("testdata/regions"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runAll(t, families, "make lab-regions", func(result *Result, _ bool) {
		if result.Failed() > 0 {
			t.Errorf("%d musts do not hold: %+v", result.Failed(), result.Rows)
		}
		for _, row := range writeAndRead(t, result, filepath.Join(dir, "regions.json")).Rows {
			if admitted, share := row.of("admitted"), row.of("share"); !(admitted > 0 && admitted <= row.of("calls")) || !(share > 0.4 && share < 1.2) {
				t.Errorf("%+v", row)
			}
		}
	})
}

// writeAndRead returns the result as in its file, which has a line for each row.
func writeAndRead(t *testing.T, r *Result, file string) *Result {
	t.Helper()
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	back, err := ReadResult(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(string(text), "\n    {\"scenario\":")
	if len(back.Rows) != len(r.Rows) || lines != len(r.Rows) {
		t.Fatalf("%d rows in %d lines, want %d of each:\n%s", len(back.Rows), lines, len(r.Rows), text)
	}
	for i, row := range back.Rows {
		want := r.Rows[i]
		if row.Scenario != want.Scenario || row.Kind != want.Kind || row.Musts != want.Musts || row.Failed != want.Failed {
			t.Errorf("row %d is %+v, want %+v", i, row, want)
		}
	}
	return back
}

// sane fails the test for figures that no run can have.
func sane(t *testing.T, r Row) {
	t.Helper()
	name := r.Scenario + " " + r.Kind
	if calls, admitted := r.of("calls"), r.of("admitted"); !(admitted > 0 && admitted <= calls) {
		t.Errorf("%s: %v of %v calls admitted", name, admitted, calls)
	}
	for _, figure := range []string{"waits", "jain", "spread", "false-denials"} {
		if x := r.of(figure); !(x >= 0 && x <= 1) {
			t.Errorf("%s: %s = %v, want 0 to 1", name, figure, x)
		}
	}
	// At a load of 3, count-and-push may admit every call.
	for _, figure := range []string{"utilisation", "utilisation-whole"} {
		if x := r.of(figure); !(x > 0.3 && x < 3.5) {
			t.Errorf("%s: %s %v, want 0.3 to 3.5", name, figure, x)
		}
	}
	over, ops, messages := r.of("exceedance"), r.of("ops"), r.of("messages")
	if !(over >= 0) || !(ops >= 0) || !(messages <= ops+r.of("heartbeats")) {
		t.Errorf("%s: exceedance %v, %v ops, %v messages", name, over, ops, messages)
	}
}

// runAll runs every case, a few in parallel, and passes the results of the cases that -run selected
// to then. complete reports whether all cases ran.
func runAll(t *testing.T, families []*Family, command string, then func(r *Result, complete bool)) {
	var runs []Run
	for _, f := range families {
		for _, c := range f.Cases() {
			runs = append(runs, Run{Case: c, Figures: Figures{}, Violated: []string{"the run did not finish"}})
		}
	}
	picked := make([]bool, len(runs))
	t.Cleanup(func() { // after the parallel tests
		complete := !slices.Contains(picked, false)
		if !complete {
			command = fmt.Sprintf("go test -lab -run '%s'", flag.Lookup("test.run").Value)
		}
		result := &Result{Command: command, Versions: versions()}
		for i := 0; i < len(runs); {
			var scenario []Run
			for name := runs[i].Case.Scenario; i < len(runs) && runs[i].Case.Scenario == name; i++ {
				if picked[i] {
					scenario = append(scenario, runs[i])
				}
			}
			result.Add(scenario)
		}
		then(result, complete)
	})
	for i := range runs {
		c := runs[i].Case
		t.Run(c.Scenario+"/"+c.Kind, func(t *testing.T) {
			t.Parallel()
			picked[i] = true
			start := time.Now()
			switch c.Family.Lab {
			case Hot:
				runs[i] = HotRun(c, fleet.RunHot(t, c.Hot))
			case Calls:
				runs[i] = CallRun(c, fleet.RunCalls(t, c.Call))
			case Regions:
				runs[i] = RegionRun(c, fleet.RunRegions(t, c.Region))
			default:
				runs[i] = RateRun(c, fleet.Run(t, c.Rate))
			}
			if *lab {
				fmt.Fprintf(os.Stderr, "%s %s: %v (%.1f s)\n", c.Scenario, c.Kind, runs[i].Figures, time.Since(start).Seconds())
			}
		})
	}
}

// versions returns the versions of everything that can change a figure. A test
// binary has no build information, so module versions are read from go.mod.
func versions() map[string]string {
	v := map[string]string{"Go": runtime.Version()}
	if *revision != "" {
		v["revision"] = *revision
	}
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		v["bench/go.mod"] = err.Error()
	}
	for _, m := range regexp.MustCompile(`/(go-redis|miniredis)/v\d+ (v\S+)`).FindAllSubmatch(text, -1) {
		v[string(m[1])] = string(m[2])
	}
	return v
}

// wellFormed fails the test unless the text is XML without NaN or Inf.
func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	for _, x := range []string{"NaN", "Inf"} {
		if bytes.Contains(text, []byte(x)) {
			t.Errorf("%s in\n%s", x, text)
		}
	}
}
