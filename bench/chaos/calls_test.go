package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestCallsInFlight is the short form of the rows of calls in flight of make chaos. More calls than permits never run at once.
func TestCallsInFlight(t *testing.T) {
	needRedis(t)
	for _, row := range callsRows {
		if !row.short && !testenv.Long() {
			continue
		}
		p, err := row.plan()
		if err != nil {
			t.Fatal(err)
		}
		t.Run(p.title(), func(t *testing.T) {
			t.Parallel()
			play(t, p)
		})
	}
}

// TestEveryCallsRowHasAFault checks the names of the rows.
func TestEveryCallsRowHasAFault(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range callsRows {
		p, err := row.plan()
		if err != nil {
			t.Error(err)
			continue
		}
		if seen[p.title()] {
			t.Errorf("two rows are %q", p.title())
		}
		seen[p.title()] = true
		if row.begin != nil {
			continue
		}
		f := p.faults[0]
		if !slices.ContainsFunc(f.plans(plan{}), func(q plan) bool { return q.topology == p.topology }) {
			t.Errorf("%q does not happen on %s", row.name, p.topology)
		}
		if f.functions || f.load != nil {
			t.Errorf("%q is not a fault of Redis or of the network", row.name)
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
		{"one call above is allowed", callsRun{above: 1}, with(span{0, 2 * s, 3 * s, false, 0}), ""},
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
			wantBroken(t, checkCalls(&test.run, test.calls), test.broken)
		})
	}
}

// wantBroken compares the kinds of the violations of a verdict.
func wantBroken(t *testing.T, v *verdict, want string) {
	t.Helper()
	kinds := ""
	for _, x := range v.Broken {
		kinds += x.kind
	}
	if kinds != want {
		t.Errorf("violations %q, want %q: %+v", kinds, want, v.Broken)
	}
}

// TestSpans reads the records of a process.
func TestSpans(t *testing.T) {
	const a, b, c, d = 1, 2, 3, 4
	begins := func(at int64, caller uint16, source hybridlimit.Source) record {
		return record{kind: recordBegin, key: caller, source: source, begin: at}
	}
	ends := func(at int64, caller uint16) record { return record{kind: recordEnd, key: caller, begin: at} }
	member := func(at int64, is bool) record { return record{kind: recordMember, allowed: is, begin: at} }
	got := spansOf(2, []record{
		member(4, true), begins(5, a, hybridlimit.SourceLease), begins(6, b, hybridlimit.SourceFallback), ends(8, a), ends(9, c),
		member(9, false), member(10, true), begins(11, d, hybridlimit.SourceRedis), member(12, false), member(13, false),
	}, 20)
	if want := "[{2 5 8 false 0} {2 6 20 true 9} {2 11 20 false 12}]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
}
