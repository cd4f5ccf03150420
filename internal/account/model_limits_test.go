package account

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestModelLimits checks the worst cases of limits that change while ops are in flight. It compares how far the fleet exceeds
// the larger limit. The search found these schedules.
func TestModelLimits(t *testing.T) {
	large := hybridlimit.TokenBucket(8, 7*time.Second, 5)
	small := hybridlimit.TokenBucket(8, 7*time.Second, 1)
	limit := func(p int) []modelEvent { return does(p, evLimit) }
	for _, tc := range []struct {
		name   string
		events []modelEvent
		short  bool
		excess float64
	}{
		{
			name: "a smaller limit and back gives nothing", excess: 0,
			events: script(calls(0, 3), does(0, evRound), limit(0), calls(0, 1), does(0, evRound), limit(0), calls(0, 5), does(0, evRound), calls(1, 5), does(1, evRound)),
		},
		{
			// Open: a state that is full under the smaller limit is forgotten. It is then a full bucket to the processes that
			// still have the other limit. This repeats for as long as the processes have different limits.
			name: "an op under the smaller limit has the state forgotten early", short: true, excess: 0.2,
			events: script(calls(0, 3), does(0, evRound), limit(0), calls(0, 1), does(0, evRound), after(3323*time.Millisecond, calls(1, 5)), does(1, evRound)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pl := modelPlan{
				limit: large, other: small, procs: 2, mode: ModeStrict, every: defaultSyncEvery, warm: true, maxWait: time.Hour, hazard: hazLimit,
				plain: true, short: tc.short, events: tc.events,
			}
			var trace strings.Builder
			if o := pl.run(mutNone, &trace); o.excess > tc.excess+0.01 || o.excess < tc.excess-0.01 && tc.excess > 0 {
				t.Errorf("excess %.3f, want %.3f; %q\n%s", o.excess, tc.excess, o.bad, trace.String())
			}
		})
	}
}
