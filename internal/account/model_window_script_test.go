package account

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// windowFigures are the results of a schedule on a window, in units.
type windowFigures struct {
	excess float64 // over Rate for each of any windows in a row: fixed windows only
	debt   float64 // counted more than once, or in another window
	over   float64 // counted more than once, or in another window
	late   int64   // dropped
}

func (f windowFigures) near(g windowFigures) bool {
	return math.Abs(f.excess-g.excess)+math.Abs(f.debt-g.debt)+math.Abs(f.over-g.over) < 0.02 && f.late == g.late
}

// atEdge places events at a time before (negative) or after the end of the window. The time is one of edges.
func atEdge(d time.Duration, es ...[]modelEvent) []modelEvent {
	return append([]modelEvent{{kind: evEdge, n: int64(slices.Index(edges[:], d))}}, script(es...)...)
}

func ones(n int) []int64 { return slices.Repeat([]int64{1}, n) }

// TestModelWindows has counterexamples to rules that windows do not have, and to windows without the named rule. They start
// with a window of one second.
func TestModelWindows(t *testing.T) {
	const ms = time.Millisecond
	fixed, sliding := hybridlimit.FixedWindow(10, time.Second), hybridlimit.SlidingWindow(10, time.Second)
	day := hybridlimit.CalendarWindow(10, hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "America/Santiago"})
	seen := func(ps ...int) (es []modelEvent) { // each process has a view and has used one unit
		for _, p := range ps {
			es = append(es, script(calls(p, 1), does(p, evRound))...)
		}
		return es
	}
	// p0 uses n units at the end of the second window, without a lease, and leases of the next one.
	ahead := func(n int) []modelEvent {
		return script(seen(0), atEdge(ms), atEdge(-tick-ms, calls(0, ones(n)...), does(0, evRound, evRound)))
	}
	// A sync of p0 is sent before the last part of that window, and answered at its end.
	slow := script(seen(0), atEdge(ms, seen(0)), atEdge(-40*ms, calls(0, ones(9)...), does(0, evFreeze)),
		atEdge(-ms, does(0, evArrive)), atEdge(-time.Microsecond, does(0, evArrive)))
	spends := script(seen(0), calls(1, ones(9)...), does(1, evRound), calls(0, 1, 1, 1), does(0, evRound))
	for _, tc := range []struct {
		name   string
		limit  hybridlimit.Limit
		procs  int
		mode   Mode // ModeDeferred if zero
		credit int64
		events []modelEvent
		hazard hazard
		on     windowFigures
		mutant mutant
		off    windowFigures
		// seconds: of a day the mutant breaks less, because each op names its window, or because a second is no window.
		seconds bool
		silent  bool // no property fails: a step of the clock may add as much
	}{
		{
			name: "C, not freshness, is the cure", limit: fixed, procs: 3, credit: 2,
			events: script(seen(0, 1, 2), calls(2, ones(7)...), does(2, evRound), calls(0, ones(9)...), calls(1, ones(8)...)),
			on:     windowFigures{excess: 4, debt: 4}, mutant: mutUncapped, off: windowFigures{excess: 17, debt: 17},
		},
		{
			name: "of the estimate too", limit: sliding, procs: 3, credit: 2,
			events: script(seen(0, 1, 2), calls(2, ones(7)...), does(2, evRound), calls(0, ones(9)...), calls(1, ones(8)...)),
			on:     windowFigures{excess: 4}, mutant: mutUncapped, off: windowFigures{excess: 17},
		},
		{
			name: "however old the views are, within the window", limit: fixed, procs: 3, credit: 2,
			events: script(seen(0, 1, 2), after(900*ms, calls(2, ones(7)...), does(2, evRound)), calls(0, ones(9)...), calls(1, ones(8)...)),
			on:     windowFigures{excess: 4, debt: 4},
		},
		{
			name: "what comes late counts in its own window", limit: sliding, procs: 2, credit: 4,
			events: script(seen(0), atEdge(-ms, calls(0, ones(4)...), does(0, evFreeze)), atEdge(ms, does(0, evArrive, evArrive)),
				calls(1, ones(9)...), does(1, evRound), calls(0, ones(4)...)),
			on: windowFigures{excess: 4}, mutant: mutDropLate, off: windowFigures{excess: 8},
		},
		{
			name: "and what it had too much is carried", limit: fixed, seconds: true, procs: 2, credit: 4,
			events: script(seen(0), calls(1, ones(9)...), does(1, evRound), atEdge(-ms, calls(0, ones(4)...), does(0, evFreeze)),
				atEdge(ms, does(0, evArrive, evArrive)), calls(1, ones(9)...), does(1, evRound), calls(0, ones(4)...)),
			on: windowFigures{excess: 4, debt: 4}, mutant: mutDropLate, off: windowFigures{excess: 4, debt: 7},
		},
		{
			name: "in another it takes what others could have", limit: fixed, procs: 2, credit: 4,
			events: script(seen(0), atEdge(-ms, calls(0, ones(4)...), does(0, evFreeze)), atEdge(ms, does(0, evArrive, evArrive))),
			mutant: mutLateHere, off: windowFigures{over: 4},
		},
		{
			name: "older than the last it is dropped, and counted as that", limit: fixed, seconds: true, procs: 2, credit: 4,
			events: script(seen(0), atEdge(-ms, calls(0, ones(4)...), does(0, evFreeze)), after(1500*ms, does(0, evArrive, evArrive))),
			on:     windowFigures{late: 4}, mutant: mutLateHere, off: windowFigures{over: 4},
		},
		{
			name: "a lease dies with its window", limit: fixed, seconds: true, procs: 2, mode: ModeStrict,
			events: script(after(500*ms, seen(0)), atEdge(ms, calls(1, ones(10)...), does(1, evRound), calls(0, ones(9)...))),
			mutant: mutLongLife, off: windowFigures{excess: 9, debt: 9},
		},
		{
			name: "a sliding one too", limit: sliding, procs: 2, mode: ModeStrict,
			events: script(after(500*ms, seen(0)), after(850*ms, calls(1, ones(10)...), does(1, evRound)), calls(0, ones(9)...)),
			mutant: mutLongLife, off: windowFigures{excess: 2.65},
		},
		{
			name: "so does a view", limit: fixed, procs: 2, credit: 3,
			events: script(seen(0, 1), atEdge(ms, calls(0, 1, 1, 1), does(0, evRound), calls(1, 1, 1, 1), does(1, evRound)),
				calls(1, ones(10)...), does(1, evRound), calls(0, 1, 1, 1)),
			on: windowFigures{excess: 3, debt: 3}, mutant: mutViewStays, off: windowFigures{excess: 9, debt: 9},
		},
		{
			name: "and a word of credit", limit: fixed, procs: 2, credit: 8,
			events: script(seen(0), atEdge(-ms, calls(0, 1)), atEdge(ms, calls(0, 1, 1, 1), does(0, evRound)),
				seen(1), calls(1, ones(10)...), does(1, evRound), calls(0, ones(8)...)),
			on: windowFigures{excess: 7, debt: 7}, mutant: mutWordStays, off: windowFigures{excess: 11, debt: 11},
		},
		{
			name: "an excess is repaid", limit: fixed, procs: 2, credit: 3,
			events: script(spends, atEdge(ms, spends), atEdge(ms, spends), atEdge(ms, spends)),
			on:     windowFigures{excess: 3, debt: 3}, mutant: mutNoCarry, off: windowFigures{excess: 3, debt: 12},
		},
		{
			name: "what is owed of the last window denies nothing in this one", limit: fixed, seconds: true, procs: 2, credit: 4,
			events: script(seen(0), calls(0, 1), atEdge(-ms, does(0, evFreeze), calls(0, 2)), atEdge(0, does(0, evArrive, evArrive), calls(0, 9))),
			mutant: mutOwedDenies,
		},
		{
			name: "while the clock is back, what is owed is of the window that Redis counts in", limit: fixed, seconds: true, procs: 2, credit: 4, hazard: hazClock,
			events: script(seen(0), step(-500*time.Millisecond), calls(1, 1), does(1, evRound), calls(1, ones(4)...), does(1, evRound),
				calls(0, ones(9)...), does(0, evRound), calls(1, ones(4)...), does(1, evRound), after(500*ms, calls(0, ones(4)...), does(0, evRound))),
			on: windowFigures{excess: 4, debt: 4}, mutant: mutClockTag, off: windowFigures{excess: 8, debt: 8}, silent: true,
		},
		{
			name: "a lease of the next window begins when that has begun for certain", limit: fixed, procs: 2, mode: ModeStrict,
			events: script(slow, calls(0, ones(8)...)), mutant: mutAheadSent, off: windowFigures{excess: 8, debt: 8},
		},
		{
			name: "and ends before that may be over", limit: fixed, procs: 2, mode: ModeStrict,
			events: script(slow, atEdge(0), atEdge(0, calls(1, ones(10)...), does(1, evRound), calls(0, ones(8)...))),
			mutant: mutAheadLong, off: windowFigures{excess: 8, debt: 8},
		},
		{
			name: "the next window begins with what is leased of it", limit: fixed, procs: 2, mode: ModeStrict,
			events: script(ahead(3), atEdge(0, calls(1, ones(10)...), does(1, evRound), calls(0, ones(8)...))),
			mutant: mutNextForgot, off: windowFigures{excess: 8, debt: 8},
		},
		{
			name: "a sliding one too", limit: sliding, procs: 2, mode: ModeStrict,
			events: script(ahead(3), atEdge(0, calls(0, ones(6)...), calls(1, ones(4)...), does(1, evRound))),
			mutant: mutNextForgot, off: windowFigures{excess: 3},
		},
		{
			name: "a grant of a sliding window fits beside it", limit: sliding, procs: 2, mode: ModeStrict,
			events: script(ahead(3), calls(1, ones(6)...), does(1, evRound), atEdge(0, calls(0, ones(6)...))),
			mutant: mutNextBeside, off: windowFigures{excess: 5},
		},
		{
			name: "what goes back of the next window is not free in this one", limit: fixed, seconds: true, procs: 2, mode: ModeStrict,
			events: script(ahead(8), does(0, evEvict, evRound), calls(1, ones(10)...), does(1, evRound)),
			mutant: mutNextBackNow, off: windowFigures{excess: 8, debt: 8},
		},
		{
			name: "a view tells it after a loss", limit: fixed, procs: 2, mode: ModeStrict, hazard: hazLoss | hazPrompt,
			events: script(ahead(3), does(0, evLoseKey), atEdge(0, calls(1, ones(10)...), does(1, evRound), calls(0, ones(8)...))),
			mutant: mutNextUnseen, off: windowFigures{excess: 8, debt: 8},
		},
	} {
		tries := map[string]hybridlimit.Limit{tc.name: tc.limit}
		if tc.limit == fixed && !tc.seconds {
			tries[tc.name+", a day"] = day
		}
		for name, limit := range tries {
			t.Run(name, func(t *testing.T) {
				pl := modelPlan{
					limit: limit, procs: tc.procs, mode: tc.mode, credit: tc.credit, every: defaultSyncEvery,
					maxWait: time.Hour, greedy: true, hazard: tc.hazard, events: tc.events,
				}
				if pl.mode == ModeAuto {
					pl.mode = ModeDeferred
				}
				for _, m := range []mutant{mutNone, tc.mutant} {
					want, name := tc.on, "on"
					if m != mutNone {
						want, name = tc.off, fmt.Sprint("off: ", m)
					}
					var trace strings.Builder
					o := pl.run(m, &trace)
					got := windowFigures{max(o.excess, 0), max(o.debt, 0), max(o.over, 0), o.late}
					if bad := m != mutNone && !tc.silent; !got.near(want) || bad != (o.bad != "") {
						t.Errorf("%s: %+v, want %+v; %q\n%s", name, got, want, o.bad, trace.String())
					}
				}
			})
		}
	}
}
