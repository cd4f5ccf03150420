package accuracy

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

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
	got, err := Calls.Parse("dir/every.txt", wholeCalls)
	if err != nil {
		t.Fatal(err)
	}
	want := &Family{
		Lab: Calls, Name: "every", Title: "two words",
		Setting: "processes 100, limit 20 concurrent, keys 7, calls 50ms, load 0.5 95%, wait 20ms, span 20s, steady 5s, " +
			"rtt 1ms, seed 3",
		Seed: 3, Processes: 100, Latency: time.Millisecond, Span: 20 * time.Second, Steady: 5 * time.Second,
		Call:    fleet.CallScenario{Limit: 20, Keys: 7, Lasts: 50 * time.Millisecond, Wait: 20 * time.Millisecond},
		Factors: []float64{0.5, 0.95},
		Kinds:   []string{"engine", "sorted-set", "central"},
		Musts: []Must{
			{Text: "* at-once <= 1", Metric: "at-once", AtMost: true, Factor: 1, Line: 13},
			{
				Text: "engine messages/admission <= 1.02 of sorted-set at 0.95", Kinds: []string{"engine"},
				Metric: "messages/admission", AtMost: true, Factor: 1.02, Of: "sorted-set", At: 0.95, Line: 14,
			},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, words := range []map[string]word{commonWords, callWords} {
		for word := range words {
			if !strings.Contains("\n"+wholeCalls, "\n"+word+" ") {
				t.Errorf("%s is not in the file of this test", word)
			}
		}
	}
	run := got.Cases()[1].Call
	if want := (fleet.CallScenario{
		Seed: 3, Kind: fleet.SortedSet, Processes: 100, Limit: 20, Keys: 7, Lasts: 50 * time.Millisecond, Load: 0.5,
		Wait: 20 * time.Millisecond, Latency: time.Millisecond, Span: 20 * time.Second, Steady: 5 * time.Second,
	}); run != want {
		t.Errorf("the second case runs %+v, want %+v", run, want)
	}
}

func TestParseCallsSaysWhereItIsWrong(t *testing.T) {
	for _, c := range []struct{ line, by, want string }{
		{"limit 20 concurrent", "limit 20/s", `x.txt:3: limit: "20/s" is no limit of calls in flight`},
		{"limit 20 concurrent", "limit", "x.txt:3: limit: something is missing"},
		{"calls 50ms", "", "x.txt:14: calls is missing"},
		{"calls 50ms", "callls 50ms", `x.txt:5: unknown word "callls" (there are: calls, keys, kinds,`},
		{"load 0.5 95%", "load 0", "x.txt:6: load: a factor of 0 is no load"},
		{"steady 5s", "steady 20s", "x.txt:9: steady: nothing is left of a span of 20s"},
		{
			"kinds engine sorted-set central", "kinds engine sorted-set",
			"x.txt:12: kinds: the share is of central, which is missing",
		},
		{"kinds engine sorted-set central", "kinds engine central", "x.txt:14: must: sorted-set is not one of the kinds"},
		{"must * at-once <= 1", "must * jain <= 1", `x.txt:13: must: "jain" is out of place`},
		{"must * at-once <= 1", "must * at-once <= 1 at 2", "x.txt:13: must: the load has no factor 2"},
		{"must * at-once <= 1", "must * at-once <= 1 of burst", `x.txt:13: must: of "burst" is of nothing known`},
	} {
		_, err := Calls.Parse("x.txt", strings.Replace(wholeCalls, c.line+"\n", c.by+"\n", 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got error %v, want %q", c.by, c.line, err, c.want)
		}
	}
}

func TestCallScenariosParse(t *testing.T) {
	families, err := Calls.Read(os.DirFS("calls"))
	if err != nil || len(families) == 0 {
		t.Fatal(err)
	}
	for _, f := range families {
		if !slices.ContainsFunc(f.Musts, func(m Must) bool {
			return m.Metric == "at-once" && len(m.Kinds) == 0 && m.AtMost && m.Factor == 1
		}) {
			t.Errorf("%s does not bound the calls at once", f.Name)
		}
	}
}

// TestViolatedCallsAreSeen plants a fleet with a call above the limit, with more messages than the sorted set,
// and with a call that was never decided.
func TestViolatedCallsAreSeen(t *testing.T) {
	f, err := Calls.Parse("made.txt", wholeCalls)
	if err != nil {
		t.Fatal(err)
	}
	r := new(Result)
	cases := f.Cases()[3:] // of the load 0.95
	r.Add([]Run{
		CallRun(cases[0], fleet.CallReport{
			Calls: 100, Admitted: 80, Waited: 20, Half: time.Millisecond, Slow: 12345 * time.Microsecond,
			Messages: 230, Ops: 240, Most: 21, Open: 1,
		}),
		CallRun(cases[1], fleet.CallReport{
			Calls: 100, Admitted: 80, Waited: 80, Half: time.Millisecond, Slow: time.Millisecond,
			Messages: 200, Renewals: 20, Ops: 200, Most: 20,
		}),
		CallRun(cases[2], fleet.CallReport{Calls: 100, Admitted: 100, Most: 20}),
	})
	if r.Failed() != 3 || r.Rows[0].Failed != 3 {
		t.Errorf("%d musts failed, want the calls at once, the messages and the open call of the engine", r.Failed())
	}
	const bad = "* at-once <= 1: 1.05; engine messages/admission <= 1.02 of sorted-set at 0.95: 2.88; " +
		"violated: calls were never decided"
	for i, want := range []Row{
		{Kind: "engine", Musts: bad, Failed: 3, Figures: Figures{
			"calls": 100, "admitted": 80, "messages": 230, "renewals": 0, "ops": 240, "share": 0.8, "messages/admission": 2.875,
			"bare/admission": 2.875, "ops/admission": 3, "at-once": 1.05, "waits": 0.25, "wait-p50": 1, "wait-p99": 12.345,
			"denied": 0.2,
		}},
		{Kind: "sorted-set", Musts: "1 of 1", Figures: Figures{
			"calls": 100, "admitted": 80, "messages": 200, "renewals": 20, "ops": 200, "share": 0.8, "messages/admission": 2.75,
			"bare/admission": 2.5, "ops/admission": 2.5, "at-once": 1, "waits": 1, "wait-p50": 1, "wait-p99": 1, "denied": 0.2,
		}},
		{Kind: "central", Musts: "1 of 1", Figures: Figures{
			"calls": 100, "admitted": 100, "messages": 0, "renewals": 0, "ops": 0, "share": 1, "messages/admission": 0,
			"bare/admission": 0, "ops/admission": 0, "at-once": 1, "waits": 0, "wait-p50": 0, "wait-p99": 0, "denied": 0,
		}},
	} {
		want.Scenario = "made ×0.95"
		if got := r.Rows[i]; !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if got, want := r.Scenarios["made"], "two words: "+f.Setting; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Rows = nil
	r.Add([]Run{CallRun(cases[0], fleet.CallReport{Calls: 1, Admitted: 1})})
	if r.Rows[0].of("share").known() || r.Rows[0].Failed != 1 {
		t.Errorf("a bound without the other row holds: %+v", r.Rows[0])
	}
}
