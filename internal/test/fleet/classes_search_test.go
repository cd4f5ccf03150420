//go:build search && !race

// The fleets of the other tests run the same code under the race detector, which takes eight times the time.

package fleet

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestCriticalReserve runs a hundred processes with 300 critical calls a second beside ten times the limit of other calls, and
// spikes of 150 critical calls. With a floor of 20 % nearly all critical calls are admitted, and the whole rate is used. Without
// classes most are denied.
func TestCriticalReserve(t *testing.T) {
	const rate, critical, rest = 1000.0, 300.0, 10_000.0
	span, kinds := 4*time.Second, []Kind{Auto}
	if testenv.Full() {
		span, kinds = time.Duration(testenv.Runs(8, 20))*time.Second, []Kind{Auto, Strict}
	}
	for _, kind := range kinds {
		for _, floor := range []float64{0, 0.2} {
			r := Run(t, Scenario{
				Seed: testenv.Seed(t), Kind: kind, Processes: 100, Limit: hybridlimit.PerSecond(int64(rate)), Latency: 500 * time.Microsecond,
				Floor: floor, Critical: critical / (critical + rest), Spike: 150,
				Span: span, Steady: span / 2, Load: Load{Factor: (critical + rest) / rate},
			})
			served := float64(r.CriticalAdmitted) / float64(r.CriticalCalls)
			spikes := float64(r.SpikeAdmitted) / float64(r.SpikeCalls)
			t.Logf("%s, floor %g: %.4f of %d critical calls, %.4f of %d in spikes, rate used %.4f, exceedance %.1f, %.3f ops per admission, %.3f waited",
				kind, floor, served, r.CriticalCalls, spikes, r.SpikeCalls, r.Utilisation, r.Exceedance, float64(r.Ops)/float64(r.Admitted), float64(r.Waited)/float64(r.Calls))
			switch {
			case len(r.Violated) > 0:
				t.Errorf("violated: %q", r.Violated)
			case r.Utilisation < 0.99 || r.Exceedance > 0.05*rate:
				t.Errorf("utilisation %.3f, exceedance %.1f", r.Utilisation, r.Exceedance)
			case floor > 0 && (served < 0.99 || spikes < 0.99):
				t.Errorf("%.4f of the critical calls and %.4f of those in spikes were admitted, want 0.99", served, spikes)
			case floor == 0 && served > 0.5:
				t.Errorf("without classes %.4f of the critical calls were admitted: the load is too low for this test", served)
			}
		}
	}
}
