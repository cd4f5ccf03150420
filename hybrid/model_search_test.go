package hybrid

import "testing"

// TestModelFindsMutants shows that the search can fail: each rule is switched
// off in turn, and random schedules must break the bound. How many that takes
// differs by a thousand times: the rare ones are left to the long run, and two
// (mutNoTicks, mutBlindSoon: one in 40 000 and less) to TestModelSchedules.
func TestModelFindsMutants(t *testing.T) {
	seed := modelSeed(t)
	fast := func(pl *modelPlan) bool { return pl.greedy && pl.limit.TimeToFull() < 200e6 }
	spiky := func(pl *modelPlan) bool { return fast(pl) && pl.credit >= 2 && pl.procs == 2 }
	for _, tc := range []struct {
		mutant mutant
		mode   Mode
		hazard hazard
		common bool // one in a few hundred
		only   func(*modelPlan) bool
	}{
		{mutInflight, ModeDeferred, 0, true, nil},
		{mutSendRefill, ModeDeferred, 0, false, nil},
		{mutNoNetting, ModeAuto, 0, true, nil},
		{mutNetExpired, ModeAuto, 0, false, spiky},
		{mutReceiptDeadline, ModeStrict, 0, false, nil},
		{mutCreditWhileAsked, ModeAuto, 0, false, nil},
		{mutLongLife, ModeStrict, 0, true, nil},
		{mutAnyCost, ModeDeferred, 0, true, nil},
		{mutBlind, ModeAuto, 0, true, nil},
		{mutEvictOwing, ModeDeferred, 0, false, nil},
		{mutLateWord, ModeStrict, 0, false, nil},
		{mutDenyReceipt, ModeAuto, 0, true, nil},
		{mutNoEnvelope, ModeDeferred, 0, true, nil},
		{mutStaleApplied, ModeDeferred, 0, true, nil},
		{mutNoReplay, ModeStrict, 0, true, nil},
		{mutRetryPicksUp, ModeDeferred, 0, true, nil},
		{mutRetryMoves, ModeDeferred, 0, true, nil},
		{mutRetrySplits, ModeDeferred, 0, true, nil},
		{mutSkipEvicted, ModeDeferred, hazLoss, true, nil},
		{mutNoMerge, ModeAuto, hazLoss, true, nil},
		{mutNoSince, ModeAuto, hazLoss, true, nil},
		{mutNoResync, ModeAuto, hazLoss, true, nil},
		{mutStampNow, ModeDeferred, hazClock, true, nil},
		{mutClockResets, ModeStrict, hazClock, true, nil},
		{mutNoCeiling, ModeStrict, 0, true, nil},
		{mutOneGeneration, ModeStrict, 0, true, nil},
		{mutViewFull, ModeAuto, 0, true, nil},
		{mutKeepGranted, ModeStrict, 0, true, nil},
		{mutEagerNewcomer, ModeAuto, hazMembers, true, nil},
		{mutLastCount, ModeAuto, hazMembers, true, nil},
	} {
		t.Run(tc.mutant.String(), func(t *testing.T) {
			if !tc.common && modelRuns(0, 1) == 0 {
				t.Skip("found in too few schedules for a short run; set HYBRIDLIMIT_LONG")
			}
			runs := 0
			for i := uint64(0); runs < 200_000; i++ {
				pl := planOf(seed+i, tc.mode, tc.hazard)
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
