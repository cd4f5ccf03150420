package account

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestModelMembers checks the worst cases of the bound while N changes. Overshoot allows 5 units: C is 5 in a fleet of up to
// two processes and 2 in a fleet of three.
func TestModelMembers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		procs  int // the first half of them is running at the start
		events []modelEvent
		excess float64
	}{
		{"a newcomer gives no credit, but the others have not counted it yet", 3, script(
			does(2, evJoin), calls(2, 10), does(2, evRound), calls(0, 1, 1, 1, 1, 1, 1), calls(1, 1, 1, 1, 1, 1, 1),
		), 10},
		{"a second later they have", 3, script(
			does(2, evJoin), after(time.Second, calls(2, 10)), does(2, evRound), calls(0, 1, 1, 1, 1, 1, 1), calls(1, 1, 1, 1, 1, 1, 1),
		), 4},
		{"who is alone may still have a view of when he was not", 2, script(
			calls(0, 1), does(0, evRound), calls(1, 9), does(1, evRound, evDepart), after(10*time.Second, calls(0, 1, 1, 1, 1, 1, 1)),
		), 5},
		// Regression: a process that had left counted as the last to speak to Redis, but its units on its own credit did not
		// count. The fleet exceeded the bound.
		{"and of when nobody had used his credit", 4, script(
			calls(1, 10), does(1, evRound, evDepart), calls(2, 1, 1), does(2, evRound, evDepart), after(10*time.Second, calls(0, 1, 1, 1, 1, 1, 1)),
		), 7},
		{"the same where one crashed", 4, script(
			calls(1, 10), does(1, evRound, evDepart), calls(2, 1, 1), does(2, evRound, evCrash), after(10*time.Second, calls(0, 1, 1, 1, 1, 1, 1)),
		), 7},
		{"who came later has seen what others used before they left", 4, script(
			calls(2, 1, 1), does(2, evRound, evDepart, evDepart), after(10*time.Second, does(2, evJoin)), after(2*time.Second, calls(2, 8), does(2, evRound, evDepart)),
			after(10*time.Second, calls(0, 1, 1, 1, 1, 1, 1)),
		), 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pl := modelPlan{
				limit: hybridlimit.TokenBucket(1, time.Hour, 10), procs: tc.procs, every: defaultSyncEvery, blind: true, warm: true,
				maxWait: time.Hour, hazard: hazMembers, overshoot: 0.5, events: tc.events,
			}
			var trace strings.Builder
			if o := pl.run(mutNone, &trace); o.bad != "" || math.Abs(o.excess-tc.excess) > 0.01 {
				t.Errorf("excess %.3f, want %g (bound %d) %s\n%s", o.excess, tc.excess, o.bound, o.bad, trace.String())
			}
		})
	}
}
