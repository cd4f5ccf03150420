package account

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// The fleets for which the protocol was sized. The lab runs them with real limiters (docs/lab). The model checks them against
// the same bounds in a second or two.
var (
	fleetA = livePlan{procs: 100, limit: hybridlimit.TokenBucket(1000, time.Second, 1000)}
	fleetB = livePlan{procs: 10, limit: hybridlimit.TokenBucket(10_000, time.Second, 10_000)}
	fleetC = livePlan{procs: 20, limit: hybridlimit.TokenBucket(1000, time.Second, 100)}
	fleetD = livePlan{procs: 20, limit: hybridlimit.TokenBucket(100, time.Second, 20)}
)

func (pl livePlan) at(load float64) livePlan { pl.load = load; return pl }

func (pl livePlan) onOff() livePlan {
	pl.on, pl.off = 250*time.Millisecond, 750*time.Millisecond
	return pl
}

func TestModelReaches(t *testing.T) {
	// One seed only: the units admitted in twenty seconds differ between seeds by about one per cent. This difference says
	// nothing about the protocol.
	const seed = 7
	type bound struct {
		util, ops, perCall, waited, jain, spread float64 // 0: no bound
	}
	for _, tc := range []struct {
		name  string
		fleet livePlan
		loads []float64
		want  bound
	}{
		{"a hundred at half", fleetA, []float64{0.5}, bound{util: 0.9999, ops: 0.4, waited: 0.05}},
		{"a hundred at the limit", fleetA, []float64{1.05}, bound{util: 0.965, ops: 0.35}},
		{"a hundred over it", fleetA, []float64{1.5, 3, 10}, bound{util: 0.99, ops: 0.25, jain: 0.98}},
		{"ten with a large limit", fleetB, []float64{0.5}, bound{util: 0.995, perCall: 0.004, waited: 0.05}},
		{"ten over a large limit", fleetB, []float64{1.5, 10}, bound{util: 0.995, perCall: 0.004, jain: 0.98}},
		{"twenty, a burst of 100", fleetC, []float64{0.5, 1.5, 10}, bound{util: 0.98, ops: 1.4}},
		{"twenty, a burst of 20", fleetD, []float64{0.5, 1.5, 10}, bound{util: 0.98, ops: 1.4}},
		{"a burst of 100, on and off", fleetC.onOff(), []float64{1.5, 3, 10}, bound{util: 0.965}},
		{"a burst of 20, on and off", fleetD.onOff(), []float64{1.5, 3, 10}, bound{util: 0.965}},
		{"ten, some calls costing 50", livePlan{procs: 10, limit: hybridlimit.TokenBucket(1000, time.Second, 1000), big: 50}, []float64{0.1, 0.3, 1}, bound{util: 0.9}},
		{"twenty, some calls costing 10", livePlan{procs: 20, limit: fleetC.limit, big: 10}, []float64{0.2, 0.8, 3}, bound{util: 0.9}},
		{"a hundred, some asking more", livePlan{procs: 100, limit: fleetA.limit, zipf: 1}, []float64{1.5, 10}, bound{util: 0.99, spread: 0.1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []Mode{ModeStrict, ModeAuto} {
				loads := tc.loads
				switch { // a short run: one load in each mode
				case testenv.Runs(0, 1) > 0:
				case mode == ModeStrict:
					loads = loads[:1]
				default:
					loads = loads[len(loads)-1:]
				}
				for _, load := range loads {
					pl := tc.fleet.at(load)
					pl.mode, pl.steady = mode, 5*time.Second
					o, w := pl.run(seed, 20*time.Second)
					if testing.Verbose() {
						t.Logf("%v, load %g: %v", mode, load, o)
					}
					over := 0.0
					if mode == ModeAuto {
						over = defaultOvershoot * float64(pl.limit.Burst)
					}
					if o.excess > over+1e-3 {
						t.Errorf("%v, load %g: excess %.3f, at most %g (C is %d)", mode, load, o.excess, over, w.t.Credit)
					}
					for what, is := range map[string]bool{
						"utilisation": o.utilisation < tc.want.util, "ops per admission": tc.want.ops > 0 && o.ops > tc.want.ops,
						"ops per decision": tc.want.perCall > 0 && o.perCall > tc.want.perCall,
						"waits":            tc.want.waited > 0 && o.waited > tc.want.waited || mode == ModeAuto && w.t.Credit > pl.big && o.waited > 0,
						"Jain":             o.jain < tc.want.jain, "spread": tc.want.spread > 0 && o.spread > tc.want.spread,
					} {
						if is {
							t.Errorf("%v, load %g: %s: %v, want %+v", mode, load, what, o, tc.want)
						}
					}
				}
			}
		})
	}
}

// String returns the figures for a table.
func (o liveOutcome) String() string {
	return fmt.Sprintf("utilisation %.4f, excess %.2f, %.3f ops per admission, %.4f per decision, %.1f %% wait, Jain %.4f, spread %.3f",
		o.utilisation, o.excess, o.ops, o.perCall, 100*o.waited, o.jain, o.spread)
}

// TestModelEarns prints the value of each mechanism: the figures without it beside the figures with all of them.
// docs/decisions/0006 quotes the output with HYBRIDLIMIT_LONG=1 and -v.
func TestModelEarns(t *testing.T) {
	if testenv.Runs(0, 1) == 0 {
		t.Skip("figures for a document; set HYBRIDLIMIT_LONG")
	}
	for _, tc := range []struct {
		name  string
		fleet livePlan
	}{
		{"100 × 1000/s burst 1000, load 0.5", fleetA.at(0.5)},
		{"the same, load 1.05", fleetA.at(1.05)},
		{"the same, load 1.5", fleetA.at(1.5)},
		{"the same, load 10", fleetA.at(10)},
		{"20 × 1000/s burst 100, load 1.5", fleetC.at(1.5)},
		{"the same, on/off, load 3", fleetC.onOff().at(3)},
		{"20 × 100/s burst 20, load 10", fleetD.at(10)},
	} {
		ops := map[ablation]float64{}
		for _, off := range []ablation{withAll, withoutLedger, withoutTurns, withoutFree, withoutSizing} {
			pl := tc.fleet
			pl.mode, pl.steady, pl.left = ModeStrict, 5*time.Second, off
			o, _ := pl.run(7, 20*time.Second)
			t.Logf("%s | %s | %v", tc.name, off, o)
			ops[off] = o.ops
		}
		for _, off := range []ablation{withoutLedger, withoutTurns, withoutFree} {
			if ops[withAll] > ops[off]+0.02 {
				t.Errorf("%s: %.3f ops per admission with all, %.3f with %s", tc.name, ops[withAll], ops[off], off)
			}
		}
	}
}

// ablation is a mechanism that is left out.
type ablation uint8

const (
	withAll ablation = iota
	withoutLedger
	withoutTurns
	withoutFree
	withoutSizing
)

func (a ablation) String() string {
	return [...]string{"all", "no ledger", "no turns", "no free leases", "no sizing by demand"}[a]
}
