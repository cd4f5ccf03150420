package account

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestModelWindowsAhead has schedules with leases of the next window in which no process may exceed the limit by more than the
// credit of the others. The search found them.
func TestModelWindowsAhead(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	fixed, sliding := hybridlimit.FixedWindow(10, time.Second), hybridlimit.SlidingWindow(10, time.Second)
	seen := script(calls(0, 1), does(0, evRound)) // p0 has leased the rest of the first window
	for _, tc := range []struct {
		name   string
		limit  hybridlimit.Limit
		procs  int
		mode   Mode
		credit int64
		hazard hazard
		events []modelEvent
	}{
		{
			// The view has all of the last window in it, and no units. As these fade, the process has credit. But the window
			// and the leases of the next one were at the limit from the start.
			name: "no credit comes back beside leases of the next window", limit: sliding, procs: 1, mode: ModeAuto, credit: 1,
			events: script(seen, atEdge(-us, calls(0, ones(5)...), does(0, evFreeze)), atEdge(us, does(0, evArrive, evArrive)),
				atEdge(-ms, calls(0, 1, 1)), atEdge(ms, calls(0, ones(10)...))),
		},
		{
			// The op pays two units, and Redis leases seven beside these. It does not know of the two that follow.
			name: "credit that is spent while a lease of the next window is in flight", limit: sliding, procs: 1, mode: ModeAuto, credit: 4,
			events: script(seen, atEdge(ms, seen), atEdge(-40*ms, calls(0, 1, 1), does(0, evFreeze), calls(0, 1, 1), does(0, evArrive, evArrive)),
				atEdge(ms, calls(0, ones(7)...))),
		},
		{
			// Nothing is used in this window, so the process tells no view.
			name: "a view of a window that nobody used tells its leases after a loss", limit: fixed, procs: 2, mode: ModeStrict, hazard: hazLoss | hazPrompt,
			events: script(atEdge(-tick-ms, seen), atEdge(ms), atEdge(-tick-ms, does(0, evResync), calls(0, 1, 1), does(0, evLeave, evLeave, evRound, evLoseKey)),
				atEdge(ms, calls(1, ones(10)...), does(1, evRound), calls(0, ones(8)...))),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pl := modelPlan{
				limit: tc.limit, procs: tc.procs, mode: tc.mode, credit: tc.credit, every: defaultSyncEvery,
				maxWait: time.Hour, greedy: true, hazard: tc.hazard, events: tc.events,
			}
			var trace strings.Builder
			w := pl.world(mutNone)
			w.trace = &trace
			if o := pl.runIn(w); o.bad != "" || w.ahead.units == 0 {
				t.Errorf("%s; %d units leased of the next window, %d spent\n%s", o.bad, w.ahead.units, w.ahead.spent, trace.String())
			}
		})
	}
}

// Redis may need a view for the leases that it tells of the next window, although nothing is used in this one.
func TestTellsLeasesOfTheNextWindow(t *testing.T) {
	c := windowTerms()
	a, _ := aheadOf(c, leaseOfNext())
	a.view.createdAt = 1
	if a.view.level != c.Bucket.Cap || a.nextTold(c) != 3 || !a.Tells(c.Bucket, sec) {
		t.Errorf("level %d of %d, %d units of the next window: tells %t", a.view.level, c.Bucket.Cap, a.nextTold(c), a.Tells(c.Bucket, sec))
	}
}
