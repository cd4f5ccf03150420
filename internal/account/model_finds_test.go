package account

import (
	"fmt"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestModelFindsMutants shows that the search can fail. Each rule is switched off in turn, and random schedules must then break
// the bound. The number of schedules that this takes differs by a factor of a thousand. The rare cases are left to the long
// run. TestModelSchedules covers six (mutNoTicks, mutBlindSoon, mutGapSettles, mutDropBooked, mutShortMemory, mutUnmarked: one schedule
// in 40 000 or fewer), and TestModelWindows covers mutOwedDenies.
func TestModelFindsMutants(t *testing.T) {
	seed := testenv.Seed(t)
	fast := func(pl *modelPlan) bool { return pl.greedy && pl.limit.TimeToFull() < 200e6 }
	contended := func(pl *modelPlan) bool { return !pl.plain && !pl.greedy }
	spiky := func(pl *modelPlan) bool { return fast(pl) && pl.credit >= 2 && pl.procs == 2 }
	for _, tc := range []struct {
		mutant mutant
		family family
		mode   Mode
		hazard hazard
		common bool // found in one of a few hundred schedules
		only   func(*modelPlan) bool
	}{
		{mutInflight, buckets, ModeDeferred, 0, true, nil},
		{mutSendRefill, buckets, ModeDeferred, 0, false, nil},
		{mutNoNetting, buckets, ModeAuto, 0, true, nil},
		{mutNetExpired, buckets, ModeAuto, 0, false, spiky},
		{mutReceiptDeadline, buckets, ModeStrict, 0, false, nil},
		{mutCreditWhileAsked, buckets, ModeAuto, 0, false, nil},
		{mutLongLife, buckets, ModeStrict, 0, true, nil},
		{mutAnyCost, buckets, ModeDeferred, 0, true, nil},
		{mutBlind, buckets, ModeAuto, 0, true, nil},
		{mutEvictOwing, buckets, ModeDeferred, 0, false, nil},
		{mutLateWord, buckets, ModeStrict, 0, false, nil},
		{mutDenyReceipt, buckets, ModeAuto, 0, true, nil},
		{mutNoEnvelope, buckets, ModeDeferred, 0, true, nil},
		{mutStaleApplied, buckets, ModeDeferred, 0, true, nil},
		{mutNoReplay, buckets, ModeStrict, 0, true, nil},
		{mutRetryPicksUp, buckets, ModeDeferred, 0, true, nil},
		{mutRetryMoves, buckets, ModeDeferred, 0, true, nil},
		{mutRetrySplits, buckets, ModeDeferred, 0, true, nil},
		{mutSkipEvicted, buckets, ModeDeferred, hazLoss, true, nil},
		{mutNoMerge, buckets, ModeAuto, hazLoss, true, nil},
		{mutNoSince, buckets, ModeAuto, hazLoss, true, nil},
		{mutNoResync, buckets, ModeAuto, hazLoss, true, nil},
		{mutStampNow, buckets, ModeDeferred, hazClock, true, nil},
		{mutClockResets, buckets, ModeStrict, hazClock, true, nil},
		{mutNoCeiling, buckets, ModeStrict, 0, true, nil},
		{mutOneGeneration, buckets, ModeStrict, 0, true, nil},
		{mutOneGeneration, buckets, ModeStrict, hazLong, true, nil},
		{mutShrinksEarly, buckets, ModeStrict, hazLong, false, nil},
		{mutViewFull, buckets, ModeAuto, 0, false, nil},
		{mutKeepGranted, buckets, ModeStrict, 0, true, nil},
		{mutEagerNewcomer, buckets, ModeAuto, hazMembers, true, nil},
		{mutLastCount, buckets, ModeAuto, hazMembers, true, nil},
		{mutIncomplete, buckets, ModeAuto, hazMembers, true, nil},
		{mutNoSilence, buckets, ModeAuto, hazMembers, true, nil},
		{mutDropBooked, buckets, ModeStrict, hazRefusal, false, fast},
		{mutDropSpent, buckets, ModeDeferred, hazRefusal, true, nil},
		{mutDropSpent, windows, ModeDeferred, hazRefusal, true, nil},
		{mutBareOwes, buckets, ModeDeferred, 0, true, nil},
		{mutBareOwes, windows, ModeAuto, 0, true, nil},
		{mutNeverCovered, buckets, ModeStrict, 0, true, nil},
		{mutNeverCovered, windows, ModeAuto, 0, true, nil},
		{mutBackInHand, buckets, ModeStrict, 0, true, nil},
		{mutForgottenBack, buckets, ModeStrict, 0, true, nil},
		{mutDropBack, buckets, ModeStrict, hazRefusal, true, nil},
		{mutUncapped, windows, ModeDeferred, 0, true, nil},
		{mutDropLate, windows, ModeDeferred, 0, true, nil},
		{mutLateHere, windows, ModeDeferred, 0, true, nil},
		{mutLongLife, windows, ModeStrict, 0, true, nil},
		{mutViewStays, windows, ModeDeferred, 0, true, nil},
		{mutWordStays, windows, ModeDeferred, 0, false, nil},
		{mutNoCarry, windows, ModeDeferred, 0, true, nil},
		{mutClockTag, windows, ModeDeferred, hazClock, false, nil},
		{mutInflight, windows, ModeDeferred, 0, true, nil},
		{mutNoNetting, windows, ModeAuto, 0, true, nil},
		{mutNoTicks, windows, ModeStrict, 0, false, nil},
		{mutLateWord, windows, ModeStrict, 0, true, nil},
		{mutNoReplay, windows, ModeStrict, 0, true, nil},
		{mutNoMerge, windows, ModeAuto, hazLoss | hazPrompt, true, nil},
		{mutAheadSent, windows, ModeStrict, 0, true, nil},
		{mutAheadLong, windows, ModeStrict, 0, true, nil},
		{mutNextForgot, windows, ModeStrict, 0, true, nil},
		{mutNextBeside, windows, ModeStrict, 0, true, nil},
		{mutNextBackNow, windows, ModeStrict, 0, true, nil},
		{mutNextUnseen, windows, ModeStrict, hazLoss | hazPrompt, true, nil},
		{mutAnyWindow, calendars, ModeStrict, 0, true, nil},
		{mutOverStays, calendars, ModeStrict, 0, true, nil},
		{mutDropLate, calendars, ModeDeferred, 0, true, nil},
		{mutViewStays, calendars, ModeDeferred, 0, true, nil},
		{mutNoCarry, calendars, ModeDeferred, 0, true, nil},
		{mutLongLife, calendars, ModeStrict, 0, true, nil},
		{mutNoReplay, calendars, ModeStrict, 0, true, nil},
		{mutNoMerge, calendars, ModeAuto, hazLoss | hazPrompt, true, nil},
		{mutAheadLong, calendars, ModeStrict, 0, true, nil},
		{mutNextForgot, calendars, ModeStrict, 0, true, nil},
		{mutNextBackNow, calendars, ModeStrict, 0, true, nil},
		{mutNextUnseen, calendars, ModeStrict, hazLoss | hazPrompt, true, nil},
		{mutFloorless, buckets, ModeStrict, hazClass, true, nil},
		{mutFloorless, windows, ModeAuto, hazClass, true, nil},
		{mutUpperTurns, buckets, ModeStrict, hazClass, true, contended},
		{mutUnweighted, buckets, ModeAuto, hazClass | hazMembers, true, nil},
		{mutSlotsFromSend, queues, ModeAuto, 0, true, nil},
		{mutSlotsNow, queues, ModeStrict, 0, true, nil},
		{mutSlotsStay, queues, ModeAuto, 0, true, nil},
		{mutSlotsAtOnce, queues, ModeDeferred, 0, true, nil},
		{mutNoEnvelope, queues, ModeAuto, 0, true, nil},
		{mutNoReplay, queues, ModeAuto, 0, true, nil},
		{mutRetryMoves, queues, ModeAuto, 0, true, nil},
		{mutNoMerge, queues, ModeAuto, hazLoss, true, nil},
		{mutClockResets, queues, ModeStrict, hazClock, true, nil},
	} {
		t.Run(fmt.Sprintf("%v/%v", tc.family, tc.mutant), func(t *testing.T) {
			t.Parallel()
			if !tc.common && testenv.Runs(0, 1) == 0 {
				t.Skip("found in too few schedules for a short run; set HYBRIDLIMIT_LONG")
			}
			runs := 0
			for i := uint64(0); runs < 200_000; i++ {
				pl := planOf(seed+i, tc.family, tc.mode, tc.hazard)
				if tc.only != nil && !tc.only(pl) {
					continue
				}
				runs++
				if o := pl.run(tc.mutant, nil); o.bad != "" {
					t.Logf("after %d schedules (seed %d): %s", runs, seed+i, o.bad)
					return
				}
			}
			t.Errorf("not found in %d schedules", runs)
		})
	}
}
