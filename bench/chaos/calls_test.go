package main

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestCallsInFlight is the short form of the rows of calls in flight of make chaos. More calls than permits never run at once.
func TestCallsInFlight(t *testing.T) {
	needRedis(t)
	for _, row := range callsRows {
		if !row.short && !testenv.Long() {
			continue
		}
		t.Run(row.title()+" on "+row.topology(), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			out, err := playCalls(t.Context(), row)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range out.verdict.violations {
				t.Errorf("%s: %s", x.kind, x.text)
			}
			out.progress(os.Stderr, time.Since(began))
		})
	}
}

// TestEveryCallsRowHasAFault checks the names of the rows.
func TestEveryCallsRowHasAFault(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range callsRows {
		if seen[row.where()] {
			t.Errorf("two rows are %q", row.where())
		}
		seen[row.where()] = true
		if row.play != nil {
			continue
		}
		if f, err := faultNamed(row.name); err != nil {
			t.Error(err)
		} else if !slices.Contains(f.where(), row.topology()) {
			t.Errorf("%q does not happen on %s", row.name, row.topology())
		}
	}
}

// TestCheckCalls plants each violation.
func TestCheckCalls(t *testing.T) {
	const s = int64(time.Second)
	// sound has twelve calls at once of all processes, four of each, fifteen times in turn.
	sound := func() (all []span) {
		for i := range int64(15) {
			for proc := range callsProcs {
				for range callsPermits / callsProcs {
					all = append(all, span{proc, i * s, (i + 1) * s, false, 0})
				}
			}
		}
		return all
	}
	with := func(more ...span) []span { return append(sound(), more...) }
	survivors := func(kill int64) []span {
		return slices.DeleteFunc(sound(), func(s span) bool { return s.proc == 0 && s.begin >= kill })
	}
	only := func(keep func(span) bool) []span {
		return slices.DeleteFunc(sound(), func(s span) bool { return !keep(s) })
	}
	for _, test := range []struct {
		name   string
		run    callsRun
		calls  []span
		broken string // kind; empty: none
	}{
		{"sound", callsRun{}, sound(), ""},
		{"one call above", callsRun{}, with(span{0, 2 * s, 3 * s, false, 0}), "above"},
		{"one call above is allowed", callsRun{row: callsRow{above: 1}}, with(span{0, 2 * s, 3 * s, false, 0}), ""},
		{"a call of the fallback", callsRun{}, with(span{0, 2 * s, 3 * s, true, 0}), ""},
		{"a fallback above its share", callsRun{}, with(slices.Repeat([]span{{0, 2 * s, 3 * s, true, 0}}, 5)...), "fallback"},
		{"a call outlives its process", callsRun{stopped: 2 * s, resumed: 9 * s}, with(span{0, 3 * s, 4 * s, false, 0}), ""},
		{"before the process is dead", callsRun{stopped: 2 * s, resumed: 9 * s}, with(span{0, 2*s + 1, 3 * s, false, 0}), "above"},
		{"long after it runs again", callsRun{stopped: 2 * s, resumed: 8 * s}, with(slices.Repeat([]span{{0, 8*s + s/2, 9 * s, false, 0}}, 5)...), "above"},
		{"a call outlives a cut-off", callsRun{}, with(span{0, 2 * s, 5 * s, false, 2 * s}), ""},
		{"before the cut-off", callsRun{}, with(span{0, 2 * s, 5 * s, false, 2*s + 1}), "above"},
		{"of another process", callsRun{stopped: 2 * s, resumed: 9 * s}, with(slices.Repeat([]span{{1, 3 * s, 4 * s, false, 0}}, 5)...), "above"},
		{"permits of a killed process are lost", callsRun{killed: 2 * s}, sound(), "free"},
		{"permits of a killed process are free", callsRun{killed: 2 * s}, append(survivors(2*s), slices.Repeat([]span{{1, 4 * s, 5 * s, false, 0}}, 4)...), ""},
		{"permits of a killed process are free too late", callsRun{killed: 2 * s}, append(survivors(2*s), slices.Repeat([]span{{1, 6 * s, 7 * s, false, 0}}, 4)...), "free"},
		{"back too late", callsRun{back: 11 * time.Second}, sound(), "back"},
		{"back on a busy machine", callsRun{back: 11 * time.Second, cpu: 0.9}, sound(), ""},
		{"the lower limit does not hold", callsRun{fewer: [2]int64{4 * s, 5 * s}}, sound(), "fewer"},
		{"two processes only", callsRun{}, only(func(s span) bool { return s.proc != 1 }), "empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := checkCalls(&test.run, test.calls)
			kinds := ""
			for _, x := range v.violations {
				kinds += x.kind
			}
			if kinds != test.broken {
				t.Errorf("violations %q: %+v", kinds, v.violations)
			}
		})
	}
}

// TestSpans reads the lines of a process.
func TestSpans(t *testing.T) {
	got, err := spansOf(2, []string{"m 4 1", "b 5 a lease", "b 6 b fallback", "e 8 a", "e 9 c", "m 9 0", "m 10 1", "b 11 d redis", "m 12 0", "m 13 0"}, 20)
	if want := "[{2 5 8 false 0} {2 6 20 true 9} {2 11 20 false 12}]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"b 5", "b x a lease", "b 5 a"} {
		if _, err := spansOf(0, []string{bad}, 0); err == nil {
			t.Errorf("%q is a line", bad)
		}
	}
}
