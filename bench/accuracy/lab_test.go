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
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

var (
	lab      = flag.Bool("lab", false, "run all scenarios, as make lab does")
	out      = flag.String("out", "", "directory for the results of -lab; empty: docs/lab, if all scenarios ran")
	revision = flag.String("revision", "", "revision of the code, for the head of the page")
)

// TestLab runs every scenario file, and writes the table and the plots. If -run
// selects some of them, the results go only to the log, or to the directory of
// -out: the page in docs/lab must be of one revision.
func TestLab(t *testing.T) {
	if !*lab {
		t.Skip("takes minutes: make lab")
	}
	families, err := ReadAll(os.DirFS("scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	runAll(t, families, func(result *Result, complete bool) {
		dir := *out
		if dir == "" && !complete {
			t.Logf("not all scenarios ran, so no file is written:\n%s", result.Markdown())
			return
		}
		if dir == "" {
			dir = "../../docs/lab"
		}
		err := write(dir, result)
		if *out == "" {
			err = errors.Join(err, quoteIn("../../docs/protocol.md", result.quote))
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// quoteIn updates the excerpt in a page.
func quoteIn(file string, quote func(page string) (string, error)) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := quote(string(page))
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// TestShort runs the tiny scenarios, and checks all files that the lab would
// write.
func TestShort(t *testing.T) {
	families, err := ReadAll(os.DirFS("testdata/short"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runAll(t, families, func(result *Result, complete bool) {
		if !complete {
			t.Skip("not all scenarios ran")
		}
		if err := write(dir, result); err != nil {
			t.Fatal(err)
		}
		for _, row := range result.Rows {
			sane(t, row)
		}
		page, err := os.ReadFile(filepath.Join(dir, "results.md"))
		if err != nil {
			t.Fatal(err)
		}
		if rows := strings.Count(string(page), "\n| "); rows < len(result.Rows) {
			t.Errorf("%d lines of tables for %d rows:\n%s", rows, len(result.Rows), page)
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

// sane fails the test for figures that no run can have.
func sane(t *testing.T, r Row) {
	t.Helper()
	name := r.Scenario + " " + r.Kind
	if r.Calls == 0 || r.Admitted == 0 || r.Admitted > r.Calls {
		t.Errorf("%s: %d of %d calls admitted", name, r.Admitted, r.Calls)
	}
	for what, x := range map[string]Figure{
		"waits": r.Waits, "Jain": r.Jain, "spread": r.Spread, "false denials": r.FalseDenials,
	} {
		if !(x >= 0 && x <= 1) {
			t.Errorf("%s: %s = %v, want 0 to 1", name, what, x)
		}
	}
	// At a load of 3, count-and-push may admit every call.
	if !(r.Utilisation > 0.3 && r.Utilisation < 3.5) || !(r.UtilisationWhole > 0.3 && r.UtilisationWhole < 3.5) {
		t.Errorf("%s: utilisation %v, of the whole run %v, want 0.3 to 3.5", name, r.Utilisation, r.UtilisationWhole)
	}
	if !(r.Exceedance >= 0) || r.Ops < 0 || r.Messages > r.Ops+r.Heartbeats {
		t.Errorf("%s: exceedance %v, %d ops, %d messages", name, r.Exceedance, r.Ops, r.Messages)
	}
}

// runAll runs every case, a few in parallel, and passes the results of the
// cases that -run selected to then. complete reports whether all cases ran.
// Musts that do not hold fail the test.
func runAll(t *testing.T, families []*Family, then func(r *Result, complete bool)) {
	var runs []Run
	for _, f := range families {
		for _, c := range f.Cases() {
			runs = append(runs, Run{Case: c, Report: fleet.Report{Violated: []string{"the run did not finish"}}})
		}
	}
	picked := make([]bool, len(runs))
	t.Cleanup(func() { // after the parallel tests
		result := &Result{Command: "make lab", Versions: versions()}
		complete := true
		for i := 0; i < len(runs); {
			var scenario []Run
			for name := runs[i].Case.Scenario; i < len(runs) && runs[i].Case.Scenario == name; i++ {
				complete = complete && picked[i]
				if picked[i] {
					scenario = append(scenario, runs[i])
				}
			}
			result.Add(scenario)
		}
		if !complete {
			result.Command = fmt.Sprintf("go test -lab -run '%s'", flag.Lookup("test.run").Value)
		}
		for _, row := range result.Rows {
			if row.failed() > 0 {
				t.Errorf("%s %s: %s", row.Scenario, row.Kind, row.verdict())
			}
		}
		then(result, complete)
	})
	for i := range runs {
		t.Run(runs[i].Case.Scenario+"/"+runs[i].Case.Kind, func(t *testing.T) {
			t.Parallel()
			picked[i] = true
			start := time.Now()
			runs[i].Report = fleet.Run(t, runs[i].Case.Run)
			if *lab {
				row := NewRow(runs[i].Case, runs[i].Report)
				fmt.Fprintf(os.Stderr, "%s (%.0f s)\n", row, time.Since(start).Seconds())
			}
		})
	}
}

// write writes the page, the figures and the plots to a directory.
func write(dir string, r *Result) error {
	figures, err := r.JSON()
	if err != nil {
		return err
	}
	files := map[string][]byte{"results.md": []byte(r.Markdown()), "results.json": figures}
	for _, p := range r.Plots() {
		files[p.File] = p.SVG()
	}
	bad := []error{os.MkdirAll(dir, 0o755)}
	for name, text := range files {
		bad = append(bad, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	return errors.Join(bad...)
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
