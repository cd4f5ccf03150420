//go:build search

package hybrid_test

import (
	"testing"
	"time"
)

// TestFleetAdmitsItsLimit checks that a fleet with ten times its limit on one hot key admits nearly all units of the limit.
func TestFleetAdmitsItsLimit(t *testing.T) {
	fleetHoldsItsLimit(t, 3*time.Second, func(t *testing.T, rec *recorder, could float64, lasted time.Duration) {
		t.Helper()
		// A machine that is too busy to call in time is too busy to sync in
		// time. So the units admitted shrink by the missed part of the
		// calls, and again by the missed part of the syncs.
		inTime := min(1, float64(rec.asked)/(10*400*0.98*lasted.Seconds()))
		if got := float64(rec.total()); got < 0.95*inTime*inTime*could {
			t.Errorf("admitted %.0f of %.0f units, with %.0f %% of the calls made in time", got, could, 100*inTime)
		}
	})
}
