package accuracy

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// callCommand writes the page of calls in flight. make lab writes it too.
const callCommand = "make lab-calls"

// TestLabCalls runs every scenario of calls in flight, and writes the page, as TestLab does.
func TestLabCalls(t *testing.T) {
	if !*lab {
		t.Skip("takes minutes: " + callCommand)
	}
	families, err := ReadCalls(os.DirFS("calls"))
	if err != nil {
		t.Fatal(err)
	}
	runCalls(t, families, func(result *CallResult, complete bool) {
		for _, row := range result.Rows {
			if row.failed() > 0 {
				t.Errorf("%s %s: %s", row.Case.Scenario, row.Kind, verdict(row.Checks, row.Violated))
			}
		}
		dir := *out
		if dir == "" && !complete {
			t.Logf("not all scenarios ran, so no file is written:\n%s", result.Markdown())
			return
		}
		if dir == "" {
			dir = "../../docs/lab"
		}
		err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "calls.md"), []byte(result.Markdown()), 0o644))
		if err != nil {
			t.Error(err)
		}
	})
}

// TestShortCalls runs the tiny scenarios of calls in flight.
func TestShortCalls(t *testing.T) {
	families, err := ReadCalls(os.DirFS("testdata/calls"))
	if err != nil {
		t.Fatal(err)
	}
	runCalls(t, families, func(result *CallResult, _ bool) {
		page := result.Markdown()
		if musts, _ := result.Failed(); musts > 0 {
			t.Errorf("%d musts do not hold:\n%s", musts, page)
		}
		for _, row := range result.Rows {
			if row.Admitted == 0 || row.Admitted > row.Calls || !(row.Share > 0.5 && row.Share < 1.2) || !(row.AtOnce > 0) || (row.Messages > 0) != (row.Kind != "central") {
				t.Errorf("%+v", row)
			}
		}
		if strings.Contains(page, "NaN") || strings.Count(page, "\n| ") < len(result.Rows) {
			t.Error(page)
		}
	})
}

// runCalls runs every case, a few in parallel, and passes the results of the cases that -run selected to then. complete reports
// whether all cases ran.
func runCalls(t *testing.T, families []*CallFamily, then func(r *CallResult, complete bool)) {
	var runs []CallRun
	for _, f := range families {
		for _, c := range f.Cases() {
			runs = append(runs, CallRun{Case: c})
		}
	}
	picked := make([]bool, len(runs))
	t.Cleanup(func() { // after the parallel tests
		result := &CallResult{Command: callCommand, Versions: versions()}
		for i := 0; i < len(runs); {
			var scenario []CallRun
			for name := runs[i].Case.Scenario; i < len(runs) && runs[i].Case.Scenario == name; i++ {
				if picked[i] {
					scenario = append(scenario, runs[i])
				}
			}
			result.Add(scenario)
		}
		complete := !slices.Contains(picked, false)
		if !complete {
			result.Command = fmt.Sprintf("go test -lab -run '%s'", flag.Lookup("test.run").Value)
		}
		then(result, complete)
	})
	for i := range runs {
		c := runs[i].Case
		t.Run(c.Scenario+"/"+string(c.Run.Kind), func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			runs[i].Report = fleet.RunCalls(t, c.Run)
			picked[i] = !t.Failed()
			if *lab {
				fmt.Fprintf(os.Stderr, "%s (%.1f s)\n", NewCallRow(c, runs[i].Report), time.Since(start).Seconds())
			}
		})
	}
}

const wholeCalls = `title two words
processes 100
limit 20 concurrent
keys 7 # a comment
calls 50ms
load 0.5 95%
wait 20ms
span 20s
steady 5s
rtt 1ms
seed 3
kinds engine sorted-set central
must * at-once <= 1
must engine messages/admission <= 1.02 of sorted-set at 0.95
`

func TestParseCallsKnowsEveryWord(t *testing.T) {
	got, err := ParseCalls("dir/every.txt", wholeCalls)
	if err != nil {
		t.Fatal(err)
	}
	want := &CallFamily{
		Name: "every", Title: "two words",
		Base: fleet.CallScenario{
			Seed: 3, Processes: 100, Limit: 20, Keys: 7, Lasts: 50 * time.Millisecond, Wait: 20 * time.Millisecond,
			Latency: time.Millisecond, Span: 20 * time.Second, Steady: 5 * time.Second,
		},
		Loads: []float64{0.5, 0.95},
		Kinds: []fleet.Kind{fleet.Engine, fleet.SortedSet, fleet.CentralExact},
		Musts: []Must{
			{Metric: "at-once", AtMost: true, Factor: 1, Line: 13},
			{Kinds: []string{"engine"}, Metric: "messages/admission", AtMost: true, Factor: 1.02, Of: "sorted-set", At: 0.95, Line: 14},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for word := range callWords {
		if !strings.Contains("\n"+wholeCalls, "\n"+word+" ") {
			t.Errorf("%s is not in the file of this test", word)
		}
	}
}

func TestParseCallsSaysWhereItIsWrong(t *testing.T) {
	for _, c := range []struct{ line, by, want string }{
		{"limit 20 concurrent", "limit 20/s", `x.txt:3: limit: "20/s" is no limit of calls in flight`},
		{"limit 20 concurrent", "limit", "x.txt:3: limit: something is missing"},
		{"calls 50ms", "", "x.txt:14: calls is missing"},
		{"calls 50ms", "callls 50ms", `x.txt:5: unknown word "callls" (there are: calls, keys, kinds,`},
		{"load 0.5 95%", "load 0", "x.txt:6: load: 0 is no load"},
		{"steady 5s", "steady 20s", "x.txt:9: steady: nothing is left of a span of 20s"},
		{"kinds engine sorted-set central", "kinds engine sorted-set", "x.txt:12: kinds: the share is of central, which is missing"},
		{"kinds engine sorted-set central", "kinds engine central", "x.txt:14: must: sorted-set is not one of the kinds"},
		{"must * at-once <= 1", "must * jain <= 1", `x.txt:13: must: "jain" is out of place`},
		{"must * at-once <= 1", "must * at-once <= 1 at 2", "x.txt:13: must: there is no load 2"},
		{"must * at-once <= 1", "must * at-once <= 1 of burst", `x.txt:13: must: of "burst" is of nothing known`},
	} {
		_, err := ParseCalls("x.txt", strings.Replace(wholeCalls, c.line+"\n", c.by+"\n", 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got error %v, want %q", c.by, c.line, err, c.want)
		}
	}
}

func TestCallScenariosParse(t *testing.T) {
	families, err := ReadCalls(os.DirFS("calls"))
	if err != nil || len(families) == 0 {
		t.Fatal(err)
	}
	for _, f := range families {
		if !slices.ContainsFunc(f.Musts, func(m Must) bool { return m.Metric == "at-once" && len(m.Kinds) == 0 && m.AtMost && m.Factor == 1 }) {
			t.Errorf("%s does not bound the calls at once", f.Name)
		}
	}
}

// TestViolatedCallsAreSeen plants a fleet with a call above the limit, with more messages than the sorted set, and with a call that was
// never decided.
func TestViolatedCallsAreSeen(t *testing.T) {
	f, err := ParseCalls("made.txt", wholeCalls)
	if err != nil {
		t.Fatal(err)
	}
	r := &CallResult{Command: callCommand}
	cases := f.Cases()[3:] // of the load 0.95
	r.Add([]CallRun{
		{cases[0], fleet.CallReport{Calls: 100, Admitted: 80, Waited: 20, Half: time.Millisecond, Slow: 12345 * time.Microsecond, Messages: 230, Ops: 240, Most: 21, Open: 1}},
		{cases[1], fleet.CallReport{Calls: 100, Admitted: 80, Waited: 80, Half: time.Millisecond, Slow: time.Millisecond, Messages: 200, Renewals: 20, Ops: 200, Most: 20}},
		{cases[2], fleet.CallReport{Calls: 100, Admitted: 100, Most: 20}},
	})
	if musts, rows := r.Failed(); musts != 3 || rows != 1 {
		t.Errorf("%d musts in %d rows failed, want the calls at once, the messages and the open call of the engine", musts, rows)
	}
	page := r.Markdown()
	for _, want := range []string{
		"**3 musts do not hold, in 1 of 3 rows.**",
		"| made ×0.95 | engine | 80 | 0.8 | 2.875 | 2.875 | 3 | 1.05 | 25 % | 1 ms | 12.3 ms | 20 % | **at-once <= 1: 1.05**; **messages/admission <= 1.02 of sorted-set at 0.95: 2.88**; **violated: calls were never decided** |",
		"|  | sorted-set | 80 | 0.8 | 2.75 | 2.5 | 2.5 | 1 | 100 % | 1 ms | 1 ms | 20 % | 1 of 1 |",
		"|  | central | 100 | 1 | – | – | – | 1 | 0 % | – | – | 0 % | 1 of 1 |",
		"Written by `make lab-calls`", "100 processes, 20 calls at once of each of 7 keys, calls of 50ms",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	r.Rows = nil
	r.Add([]CallRun{{cases[0], fleet.CallReport{Calls: 1, Admitted: 1}}})
	if !math.IsNaN(float64(r.Rows[0].Share)) || r.Rows[0].failed() != 1 {
		t.Errorf("a bound without the other row holds: %+v", r.Rows[0])
	}
}
