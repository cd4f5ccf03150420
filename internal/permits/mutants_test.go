package permits_test

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// mutant is a rule that is left out, and the fault that shows it.
type mutant struct {
	rule  string
	fault fault
	means string
	live  bool // without it, calls or permits get stuck, or Redis reports losses; the bound holds
	rare  bool // more than 500 schedules are needed
}

var mutants = []mutant{
	{"stale", noFault, "a message takes effect once, and not after its successor", false, false},
	{"give", noFault, "a process does not use what it gives back while the answer is on its way", false, false},
	{"late", noFault, "a process whose heartbeats are too old admits nothing new", false, false},
	{"look", noFault, "a holder is dead only if its heartbeat did not change for as long as a holding lives", false, false},
	{"claim", noFault, "a holding that a later message wrote is not taken off", false, true},
	{"session", noFault, "a holding of an earlier session is told before it is used", false, false},
	{"usable", noFault, "permits of calls above the limit are not used again", false, false},
	{"learn", wiped, "after a loss, nothing is granted until all could tell their holdings", false, false},
	{"proven", wiped, "while Redis learns, permits of calls of the fallback are not used again", false, true},
	{"gap", failedOver, "a process whose last message is missing in Redis tells of a loss", false, false},
	{"tell", wiped, "all processes tell their holdings after a loss", false, false},
	{"touched", longOutage, "after a cut-off, a process tells the give-backs of the time before it", true, false},
	{"adapt", changed, "after a change of the limit, nothing is admitted until the next answer", false, false},
	{"had", noFault, "a process does not tell permits that a message without an answer may have given back", true, false},
	{"rejoin", noFault, "a process that was away does not take its missing holding for a loss", true, false},
	{"first", noFault, "a call for several permits gets all of them at once", true, false},
	{"wake", noFault, "permits that are not used go back, and calls that wait ask again", true, false},
}

// finds reports whether a schedule shows that a rule is left out.
func (m mutant) finds(seed uint64) bool {
	o := schedule(m.fault, m.rule, seed)
	if m.live {
		if len(o.bad)+len(o.kept) == 0 {
			return false
		}
		whole := schedule(m.fault, "", seed)
		return len(whole.bad)+len(whole.kept) == 0
	}
	return o.excess > 0 && (m.fault != failedOver || o.excess > schedule(m.fault, "", seed).excess)
}

// TestMutants checks that the search finds each rule that is left out.
func TestMutants(t *testing.T) {
	const most = 3000
	for _, m := range mutants {
		t.Run(m.rule, func(t *testing.T) {
			if m.rare && !testenv.Full() {
				t.Skip("needs many schedules: HYBRIDLIMIT_FULL")
			}
			for seed := range uint64(most) {
				if m.finds(seed) {
					t.Logf("seed %d: %s", seed, m.means)
					return
				}
			}
			t.Errorf("%d schedules with %s do not show the rule: %s", most, m.fault, m.means)
		})
	}
}
