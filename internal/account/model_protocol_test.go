package account

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// figures are the results of a schedule of TestModelProtocol, in units.
type figures struct {
	under  float64 // forgotten: the balance is above the balance of a Redis that lost nothing
	over   float64 // debited twice: the balance is below it
	wasted int64   // debited while no process heard of it
	unpaid int64   // admitted and never debited; negative: debited more than once
	excess float64 // admitted over Burst + rate·t
}

func (f figures) near(g figures) bool {
	d := math.Abs(f.under-g.under) + math.Abs(f.over-g.over) + math.Abs(f.excess-g.excess)
	return d < 0.01 && f.wasted == g.wasted && f.unpaid == g.unpaid
}

// lost is a batch that is applied while its answer is lost. again is the next attempt.
func lost(p int) []modelEvent  { return does(p, evFreeze, evArrive, evLose) }
func again(p int) []modelEvent { return does(p, evRetry, evArrive, evArrive) }

func step(d time.Duration) []modelEvent {
	return []modelEvent{{kind: evClock, n: d.Microseconds()}}
}

// TestModelProtocol has counterexamples to rules that the protocol does not have, and to the protocol without the named rule.
// Each case gives the results with the rule and without it. A case without a named rule is a limit of the protocol: no rule
// improves it.
func TestModelProtocol(t *testing.T) {
	slow := hybridlimit.TokenBucket(1, time.Hour, 10)
	const h = time.Hour
	two := script(calls(0, 5), does(0, evRound), calls(1, 1), does(1, evRound))
	for _, tc := range []struct {
		name   string
		events []modelEvent
		mode   Mode // ModeDeferred if zero, for credit
		limit  hybridlimit.Limit
		hazard hazard
		on     figures
		mutant mutant
		off    figures
		greedy bool
		ledger bool // also next polls
		open   bool // the property fails, and no rule cures it
	}{
		{
			name: "a lost answer", events: script(calls(0, 3), lost(0), again(0)),
			mutant: mutNoEnvelope, off: figures{over: 3, wasted: 3},
		},
		{
			name: "an old batch after the next", events: script(calls(0, 3), does(0, evFreeze, evRetry, evArrive),
				[]modelEvent{{kind: evArrive, n: 1}}, calls(0, 1), does(0, evRound, evArrive)),
			mutant: mutStaleApplied, off: figures{over: 3, wasted: 3},
		},
		{
			name: "a batch is frozen: new units wait for the next", events: script(calls(0, 3), lost(0), calls(0, 1), again(0)),
			mutant: mutRetryPicksUp, off: figures{unpaid: 1},
		},
		{
			name: "it does not move", events: script(calls(0, 3), lost(0), again(0)),
			mutant: mutRetryMoves, off: figures{wasted: 3},
		},
		{
			name: "nor is it split", events: script(calls(0, 4), lost(0), again(0)),
			mutant: mutRetrySplits, off: figures{unpaid: -2},
		},
		{
			name: "a batch seen before gets its grants", mode: ModeStrict, events: script(calls(0, 2), lost(0), again(0)),
			mutant: mutNoReplay, off: figures{unpaid: -2},
		},
		{
			name: "its key was lost since: it is debited again", hazard: hazLoss,
			events: script(calls(0, 3), lost(0), does(0, evLoseKey), calls(1, 1), does(1, evRound), again(0)),
			on:     figures{wasted: 3}, mutant: mutSkipEvicted, off: figures{under: 3},
		},
		{
			name: "which counts it twice if a view had it", hazard: hazLoss,
			events: script(calls(0, 3), lost(0), calls(1, 1), does(1, evRound, evLoseKey, evResync), again(0)),
			on:     figures{over: 3, wasted: 3},
		},
		{
			name: "so does a lost envelope", hazard: hazLoss, events: script(calls(0, 3), lost(0), does(0, evLoseEnvelopes), again(0)),
			on: figures{over: 3, wasted: 3},
		},
		{
			name: "a stamp is not before the birth of a key, though the clock stepped back", hazard: hazClock,
			events: script(calls(0, 1), does(0, evRound), step(-10*time.Second), calls(0, 3), lost(0), again(0)),
			mutant: mutStampNow, off: figures{wasted: 3},
		},
		{
			name: "one view restores everyone's use", hazard: hazLoss, events: script(two, does(1, evWipe, evResync)),
			mutant: mutNoMerge, off: figures{under: 6},
		},
		{
			name: "of one key too", hazard: hazLoss, events: script(two, does(1, evLoseKey, evResync)),
			mutant: mutNoMerge, off: figures{under: 6},
		},
		{
			name: "and that of a process that crashed", hazard: hazLoss, events: script(two, does(0, evCrash), does(1, evWipe, evResync)),
			mutant: mutFresh, off: figures{under: 6, unpaid: -1},
		},
		{
			name: "fresh is seen by the first alone", hazard: hazLoss, events: script(two, does(1, evWipe), does(0, evResync, evRound), does(1, evResync)),
			mutant: mutFresh, off: figures{under: 6, unpaid: -5},
		},
		{
			name: "what a new state was debited adds to a view", hazard: hazLoss,
			events: script(two, does(1, evWipe), calls(2, 3), does(2, evRound), does(1, evResync)),
			mutant: mutNoSince, off: figures{under: 3},
		},
		{
			name: "views are told without a reason", hazard: hazLoss, events: script(two, does(0, evWipe)),
			mutant: mutNoResync, off: figures{under: 6},
		},
		{
			name: "a second wipe before all have synced forgets what was debited between", hazard: hazLoss,
			events: script(two, does(0, evWipe), calls(2, 3), does(2, evRound, evWipe)), on: figures{under: 3},
		},
		{
			name: "so does the end of a new state that is nearly full", hazard: hazLoss,
			// Regression, found by the search: one loss, and a process whose view stays unsent for longer than the new state
			// lives.
			limit:  hybridlimit.TokenBucket(1, time.Second, 10),
			events: script(calls(0, 10), does(0, evRound, evWipe), calls(1, 1), does(1, evRound), after(4*time.Second, calls(1, 1))),
			on:     figures{under: 1, excess: 1},
		},
		{
			name: "the ledger goes with the state: what is leased near full comes on top", mode: ModeStrict, hazard: hazLoss, greedy: true, ledger: true,
			limit: hybridlimit.TokenBucket(1000, time.Second, 24),
			events: script(calls(0, 1), does(0, evRound, evWipe),
				after(100*time.Millisecond, calls(1, 24), does(1, evRound)), calls(0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)),
			on: figures{excess: 11},
		},
		{
			name: "a failover forgets what the replica had not got, until the views tell", hazard: hazFailover,
			events: script(calls(2, 1), does(2, evRound, evSave), two, does(0, evFailover)),
		},
		{
			name: "a key that is lost before the clock steps back is reborn before its stamp", hazard: hazLoss, open: true,
			events: script(calls(0, 3), lost(0), does(0, evLoseKey), step(-h), calls(1, 1), does(1, evRound), again(0)),
			on:     figures{under: 3},
		},
		{
			name: "a clock that steps back is no amnesty", mode: ModeStrict, hazard: hazClock,
			events: script(calls(0, 10), does(0, evRound), step(-h), calls(1, 10), does(1, evRound)),
			mutant: mutClockResets, off: figures{excess: 10},
		},
		{
			name: "one that steps ahead gives the refill of that time, once", mode: ModeStrict, hazard: hazClock,
			events: script(calls(0, 10), does(0, evRound), step(4*h), calls(1, 10), does(1, evRound), step(-4*h), calls(0, 4), does(0, evRound)),
			on:     figures{excess: 0},
		},
		{
			name: "up to a burst, and a lease that is out comes on top of a full bucket", mode: ModeStrict, greedy: true, hazard: hazClock,
			events: script(calls(0, 2), does(0, evRound), calls(0, 1), does(0, evRound), step(100*h), calls(1, 10), does(1, evRound), calls(0, 1, 1, 1, 1, 1, 1, 1)),
			on:     figures{excess: 10},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pl := modelPlan{
				limit: tc.limit, procs: 3, mode: tc.mode, credit: 5, every: defaultSyncEvery, blind: true, warm: true,
				maxWait: h, greedy: tc.greedy, hazard: tc.hazard, plain: !tc.ledger, events: tc.events,
			}
			if pl.limit.Rate == 0 {
				pl.limit = slow
			}
			switch pl.mode {
			case ModeAuto:
				pl.mode = ModeDeferred
			case ModeStrict:
				pl.credit = 0
			}
			for _, m := range []mutant{mutNone, tc.mutant} {
				want, name := tc.on, "on"
				if m != mutNone {
					want, name = tc.off, fmt.Sprint("off: ", m)
				}
				var trace strings.Builder
				o := pl.run(m, &trace)
				got := figures{max(o.under, 0), max(o.over, 0), o.wasted, o.unpaid, o.excess}
				if bad := m != mutNone || tc.open; !got.near(want) || bad != (o.bad != "") {
					t.Errorf("%s: %+v, want %+v; %q\n%s", name, got, want, o.bad, trace.String())
				}
			}
		})
	}
}
