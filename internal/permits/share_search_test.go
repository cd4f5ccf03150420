//go:build search

package permits_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// TestShareOfOnePlace compares the calls that a fleet admits with those of one semaphore in one place, at a load of 0.95. A round trip
// takes 0.5 ms, and calls wait 20 ms at most. With half a permit a process and short calls, a freed permit is often in a process without
// a waiting call. A sorted set admits 0.905 there (decision 0051).
//
// Regression: at 40 × 60 the share was 0.70. A process counted as starving right after a refusal, and free permits waited for it.
// At 20 × 60 it was 0.91, less than with a sorted set: calls waited 20 ms for others to share their ask, and only one or two came.
func TestShareOfOnePlace(t *testing.T) {
	for _, test := range []struct {
		procs int
		limit int64
		mean  float64 // s
		least float64
	}{
		{10, 1000, 0.05, 0.97},
		{100, 1000, 0.05, 0.97},
		{20, 200, 0.05, 0.97},
		{20, 100, 0.05, 0.97},
		{10, 60, 0.05, 0.96},
		{20, 60, 0.05, 0.96},
		{40, 60, 0.05, 0.95},
		{40, 20, 0.05, 0.91},
		{10, 1000, 5, 0.97},
		{40, 20, 5, 0.97},
	} {
		t.Run(fmt.Sprintf("%d × %d, %v s", test.procs, test.limit, test.mean), func(t *testing.T) {
			sum := map[fleet.Kind]fleet.CallReport{}
			for seed := range uint64(4) {
				lasts := time.Duration(test.mean * float64(time.Second))
				s := fleet.CallScenario{
					Seed: seed, Processes: test.procs, Limit: test.limit, Keys: 1, Lasts: lasts, Load: 0.95, Wait: 20 * time.Millisecond, Latency: 500 * time.Microsecond,
				}
				rate := 0.95 * float64(test.limit) / test.mean
				s.Span = time.Duration(max(6*test.mean, min(30_000/rate, 200), 6) * float64(time.Second))
				s.Steady = s.Span / 3
				for _, s.Kind = range []fleet.Kind{fleet.Engine, fleet.SortedSet, fleet.CentralExact} {
					r, all := fleet.RunCalls(t, s), sum[s.Kind]
					all.Admitted, all.Messages = all.Admitted+r.Admitted, all.Messages+r.Messages
					sum[s.Kind] = all
				}
			}
			best := float64(sum[fleet.CentralExact].Admitted)
			share := func(k fleet.Kind) float64 { return float64(sum[k].Admitted) / best }
			messages := func(k fleet.Kind) float64 { return float64(sum[k].Messages) / float64(sum[k].Admitted) }
			t.Logf("share %.3f, %.2f messages an admission; sorted set %.3f, %.2f",
				share(fleet.Engine), messages(fleet.Engine), share(fleet.SortedSet), messages(fleet.SortedSet))
			if share(fleet.Engine) < test.least {
				t.Errorf("share %.3f, less than %.2f", share(fleet.Engine), test.least)
			}
			most := 1.02 * messages(fleet.SortedSet)
			if test.mean < 1 && test.limit >= 10*int64(test.procs) { // short calls, ten permits a process
				most = messages(fleet.SortedSet) / 3
			}
			if messages(fleet.Engine) > most {
				t.Errorf("%.3f messages an admission, more than %.3f", messages(fleet.Engine), most)
			}
		})
	}
}
