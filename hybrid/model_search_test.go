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
		common bool // one in a few hundred
		only   func(*modelPlan) bool
	}{
		{mutInflight, ModeDeferred, true, nil},
		{mutSendRefill, ModeDeferred, false, nil},
		{mutNoNetting, ModeAuto, true, nil},
		{mutNetExpired, ModeAuto, false, spiky},
		{mutReceiptDeadline, ModeStrict, false, nil},
		{mutCreditWhileAsked, ModeAuto, false, nil},
		{mutLongLife, ModeStrict, true, nil},
		{mutAnyCost, ModeDeferred, true, nil},
		{mutBlind, ModeAuto, true, nil},
		{mutEvictOwing, ModeDeferred, false, nil},
		{mutLateWord, ModeStrict, false, nil},
	} {
		t.Run(tc.mutant.String(), func(t *testing.T) {
			if !tc.common && modelRuns(0, 1) == 0 {
				t.Skip("found in too few schedules for a short run; set HYBRIDLIMIT_LONG")
			}
			runs := 0
			for i := uint64(0); runs < 200_000; i++ {
				pl := planOf(seed+i, tc.mode, 0)
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
