//go:build search && !race

package fleet

import (
	"fmt"
	"testing"
	"time"
)

// TestTenThousand is a hot key in ten thousand processes, at ten times its rate, from a cold start and after a step. Redis
// needs 100 µs for an op, so an op of each process takes it a second. Nothing is admitted above the bound. From five seconds
// after the start or the step on, at most 5 % of the calls are decided without Redis. Processes that do not know N at a cold
// start take longer to come back.
func TestTenThousand(t *testing.T) {
	for _, tc := range []struct {
		sized bool
		step  time.Duration
		away  float64
	}{
		{true, 0, 0.05},
		{true, 8 * time.Second, 0.05},
		{false, 0, 0.3},
	} {
		t.Run(fmt.Sprintf("sized=%t,step=%v", tc.sized, tc.step), func(t *testing.T) {
			s := hotFleet(Leases, 10_000, 10, 10)
			s.Sized, s.Step, s.RedisOp = tc.sized, tc.step, 100*time.Microsecond
			s.Steady = tc.step + 5*time.Second
			s.Span = s.Steady + 15*time.Second
			r := RunHot(t, s)
			away := float64(r.Away) / float64(r.AwayOf)
			t.Logf("%.3f ops, excess %.3f of a burst, %.1f %% without Redis, seconds %.2f to %.2f, peak %.1f", r.each(),
				r.Excess/float64(s.Limit.Burst), 100*away, r.Low, r.High, r.Peak)
			if r.Excess > 0.001*float64(s.Limit.Burst) || away > tc.away || r.utilisation() < 0.95 || r.Calls == 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}
