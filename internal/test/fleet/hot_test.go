package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// hotFleet is a key of 10 units a second and process, with a burst of so many seconds.
func hotFleet(kind Kind, n, burst int64, load float64) HotScenario {
	return HotScenario{
		Kind: kind, Seed: 7, Processes: int(n), Limit: hybridlimit.TokenBucket(10*n, time.Second, 10*n*burst), Load: load,
		Latency: 500 * time.Microsecond, Span: 40 * time.Second, Steady: 24 * time.Second,
	}
}

// each is the ops of a process in a second.
func (r HotReport) each() float64 { return float64(r.Ops) / r.Seconds / float64(r.Processes) }

func (r HotReport) utilisation() float64 { return float64(r.Admitted) / float64(max(1, r.Central)) }

// TestHotKey runs each kind on a hot key of a hundred processes. Leases have no excess, and cost less than half an op. A
// ratio costs one op and has an excess after a step, which a cap makes smaller. Leased rates have none.
func TestHotKey(t *testing.T) {
	const n, burst = 100, 10
	excess := map[Kind]float64{}
	for _, tc := range []struct {
		kind      Kind
		ops, util float64 // at most; at least
		clean     bool    // no excess
	}{
		{Leases, 0.45, 0.99, true},
		{ShortLeases, 1.7, 0.99, true},
		{DropRatio, 1.01, 0.97, false},
		{DropRatioCapped, 1.01, 0.97, false},
		{RateLeases, 0.7, 0.97, true},
		{CentralExact, 0, 1, true},
	} {
		for _, step := range []bool{false, true} {
			for _, load := range []float64{0.5, 1.5, 10} {
				s := hotFleet(tc.kind, n, burst, load)
				if s.Step = 8 * time.Second; !step {
					s.Step = 0
				} else if load < 10 {
					continue
				}
				r := RunHot(t, s)
				what := fmt.Sprintf("%s, load %g, step %t", tc.kind, load, step)
				t.Logf("%s: %.3f ops, utilisation %.3f, excess %.2f of a burst, seconds %.2f to %.2f, peak %.1f", what, r.each(), r.utilisation(),
					r.Excess/float64(s.Limit.Burst), r.Low, r.High, r.Peak)
				if r.each() > tc.ops || r.utilisation() < tc.util || tc.clean && r.Excess > 0.001 || r.Jain < 0.9 || r.Away > 0 {
					t.Errorf("%s: %+v", what, r)
				}
				excess[tc.kind] = max(excess[tc.kind], r.Excess/float64(s.Limit.Burst))
			}
		}
	}
	if wild, capped := excess[DropRatio], excess[DropRatioCapped]; wild < 0.3 || capped > wild/2 {
		t.Errorf("excess %.2f without and %.2f with a cap", wild, capped)
	}
}

// TestHotWithoutRates has a burst below two units a process, so that no rate is leased. A unit costs one or two ops.
func TestHotWithoutRates(t *testing.T) {
	const n = 100
	for _, each := range []int64{1, 10} {
		for _, load := range []float64{0.5, 1.5, 10} {
			s := hotFleet(RateLeases, n, 1, load)
			s.Limit = hybridlimit.TokenBucket(each*n, time.Second, n*3/2)
			r := RunHot(t, s)
			unit := float64(r.Ops) / float64(r.Admitted)
			t.Logf("%d units a process and second, load %g: %.2f ops a unit, utilisation %.3f, excess %.2f", each, load, unit, r.utilisation(), r.Excess)
			if unit < 0.8 || unit > 2.3 || r.utilisation() < 0.97 || r.Excess > 0.001 || r.Jain < 0.85 || r.Away > 0 {
				t.Errorf("%+v", r)
			}
		}
	}
}

// TestHotSplit splits a hot key of two hundred processes into four parts. Each part has about a
// quarter of the ops. Nothing is admitted above the bound, and the parts together admit as much as the whole
// key, also if few processes have most of the calls.
func TestHotSplit(t *testing.T) {
	for _, tc := range []struct {
		load, zipf float64
		step       bool
	}{{0.5, 0, false}, {1.5, 0, false}, {10, 0, false}, {10, 0, true}, {1.5, 0.9, false}} {
		s := hotFleet(Leases, 200, 10, tc.load)
		s.Parts, s.Zipf = 4, tc.zipf
		if tc.step {
			s.Step = 8 * time.Second
		}
		r := RunHot(t, s)
		t.Logf("load %g, Zipf %g, step %t: %.3f ops, of parts %v, %d moves, utilisation %.3f, Jain %.3f, excess %.2f of a burst, seconds %.2f to %.2f", tc.load, tc.zipf,
			tc.step, r.each(), r.OpsOf, r.Moves, r.utilisation(), r.Jain, r.Excess/float64(s.Limit.Burst), r.Low, r.High)
		even := tc.zipf == 0 // otherwise few processes have most of the ops of their parts
		if even && (r.each() > 0.48 || slices.Max(r.OpsOf)*4 > r.Ops*14/10) || r.utilisation() < 0.97 || r.Excess > 0.001 {
			t.Errorf("%+v", r)
		}
	}
}

// TestHotPartDies lets the Redis of the last of four parts die. Its processes have their share of the whole limit, and
// the other parts go on.
func TestHotPartDies(t *testing.T) {
	s := hotFleet(Leases, 200, 10, 1.5)
	s.Parts, s.Dies = 4, 20*time.Second
	r := RunHot(t, s)
	away := float64(r.Away) / float64(r.AwayOf)
	t.Logf("%.1f %% of the calls without Redis, utilisation %.3f, excess %.2f of a burst, seconds %.2f to %.2f", 100*away, r.utilisation(),
		r.Excess/float64(s.Limit.Burst), r.Low, r.High)
	if away < 0.05 || away > 0.3 || r.utilisation() < 0.97 || r.Excess > 0.3*float64(s.Limit.Burst) {
		t.Errorf("%+v", r)
	}
}

// TestHotRedisIsBusy gives Redis a time for each op. So it does no more than so many in a second, and the answers of a
// cold start come late. Nothing is admitted twice.
func TestHotRedisIsBusy(t *testing.T) {
	s := hotFleet(Leases, 100, 10, 10)
	quick := RunHot(t, s)
	s.RedisOp = 2 * time.Millisecond // five ops a process and second
	busy := RunHot(t, s)
	t.Logf("the peak is %.1f ops a process, and %.1f of a busy Redis", quick.Peak, busy.Peak)
	if quick.Peak < 6 || busy.Peak > quick.Peak || busy.Waits <= quick.Waits || busy.Excess > 0.001 {
		t.Errorf("quick %+v, busy %+v", quick, busy)
	}
}

// TestBusyRedis is a fleet whose messages have 64 ops, which take Redis a millisecond, so one of each process takes it a
// second. It starts at once, at ten times the rate. A process that knows the size of its messages is patient. One that
// counts on a tenth of the time sends again and opens its breaker, and the fleet does not come back.
func TestBusyRedis(t *testing.T) {
	for _, tc := range []struct {
		batch       int
		least, most float64 // calls without Redis, from five seconds on
	}{{64, 0, 0.05}, {1, 0.5, 1}} {
		s := hotFleet(Leases, 1000, 10, 10)
		s.RedisOp, s.Batch, s.Sized, s.Steady, s.Span = time.Millisecond, tc.batch, true, 5*time.Second, 15*time.Second
		r := RunHot(t, s)
		away := float64(r.Away) / float64(r.AwayOf)
		t.Logf("batches of %d: %.1f %% without Redis, excess %.2f of a burst", tc.batch, 100*away, r.Excess/float64(s.Limit.Burst))
		if away < tc.least || away > tc.most || tc.most < 0.5 && r.Excess > 0.001*float64(s.Limit.Burst) {
			t.Errorf("batches of %d: %+v", tc.batch, r)
		}
	}
}

// TestHotCallsAreAlike checks that all kinds get the same calls.
func TestHotCallsAreAlike(t *testing.T) {
	var want HotReport
	for i, kind := range []Kind{CentralExact, Leases, DropRatio, RateLeases} {
		s := hotFleet(kind, 20, 1, 1.5)
		s.Span, s.Zipf = 30*time.Second, 1
		r := RunHot(t, s)
		if i == 0 {
			want = r
		}
		if r.Calls != want.Calls || r.Central != want.Central || r.Calls == 0 {
			t.Errorf("%s: %d calls, central %d; want %d and %d", kind, r.Calls, r.Central, want.Calls, want.Central)
		}
	}
}
