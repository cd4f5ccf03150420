package fleet

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestRegionKinds has the load mostly in one of two regions. Static shares admit a part of what one bucket does, and the
// others nearly all of it; only they send messages between regions.
func TestRegionKinds(t *testing.T) {
	s := RegionScenario{
		Seed: 1, Kind: CentralExact, Regions: 2, Processes: 2, Limit: hybridlimit.PerSecond(300), Load: 1.5, Hot: 0.9,
		Stay: 5 * time.Second, Latency: 500 * time.Microsecond, Away: 80 * time.Millisecond, Span: 10 * time.Second, Steady: 3 * time.Second,
	}
	central := RunRegions(t, s)
	for _, tc := range []struct {
		kind        Kind
		least, most float64 // of what one bucket admits
		away        bool
	}{
		{Regions, 0.85, 1.1, true}, {StaticShares, 0.5, 0.75, false}, {OneRedis, 0.85, 1.1, true},
	} {
		s.Kind = tc.kind
		r := RunRegions(t, s)
		t.Logf("%s: %+v", tc.kind, r)
		if part := float64(r.Admitted) / float64(central.Admitted); part < tc.least || part > tc.most || r.Calls != central.Calls {
			t.Errorf("%s: %.3f of one bucket's units in %d calls, want %.2f to %.2f in %d", tc.kind, part, r.Calls, tc.least, tc.most, central.Calls)
		}
		if (r.Away > 0) != tc.away || r.Excess > 0.05*300 {
			t.Errorf("%s: %+v", tc.kind, r)
		}
	}
	if central.Excess > 0 || central.Slowest > 0 {
		t.Errorf("%+v", central)
	}
}
