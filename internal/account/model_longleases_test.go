package account

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestLongLeases verifies that a burst of ten seconds makes a hot key cheap: its leases live for four seconds. With
// a MaxLife of a second it costs more than three times as much. The fleets are larger in the long form.
func TestLongLeases(t *testing.T) {
	const seed, perProcess = 7, 10 // units a second
	sizes := []int{100}
	if testenv.Runs(0, 1) > 0 {
		sizes = []int{100, 1000, 10_000}
	}
	for _, n := range sizes {
		limit := hybridlimit.TokenBucket(int64(n)*perProcess, time.Second, 10*int64(n)*perProcess)
		for _, tc := range []struct {
			name         string
			pl           livePlan
			steady, span time.Duration
			spread, jain float64
		}{
			{"0.5", livePlan{load: 0.5}, 12 * time.Second, 42 * time.Second, 0.05, 0.98},
			{"1.5", livePlan{load: 1.5}, 40 * time.Second, 60 * time.Second, 0.05, 0.98},
			{"10", livePlan{load: 10}, 12 * time.Second, 42 * time.Second, 0.05, 0.98},
			{"from 0.5 to 10", livePlan{load: 10, step: 12 * time.Second}, 20 * time.Second, 50 * time.Second, 0.05, 0.98},
			{"1.5, Zipf", livePlan{load: 1.5, zipf: 1}, 40 * time.Second, 60 * time.Second, 0.1, 0},
		} {
			t.Run(fmt.Sprintf("%d/%s", n, tc.name), func(t *testing.T) {
				t.Parallel()
				pl := tc.pl
				pl.procs, pl.limit, pl.mode, pl.steady = n, limit, ModeStrict, tc.steady
				o, w := pl.run(seed, tc.span)
				ops := o.perCall * pl.load * perProcess
				t.Logf("%.3f ops a process and second, %v", ops, o)
				if ops > 0.45 {
					t.Errorf("%.3f ops a process and second", ops)
				}
				if o.excess > 0 || o.utilisation < 0.99 || o.jain < tc.jain || o.spread > tc.spread {
					t.Errorf("%v, want utilisation 0.99, no excess, Jain %g, spread %g", o, tc.jain, tc.spread)
				}
				if pl.maxLife = 1; n == sizes[0] {
					short, _ := pl.run(seed, tc.span)
					t.Logf("with a life of a second %.3f ops a process and second", short.perCall*pl.load*perProcess)
					if short.perCall < 3*o.perCall {
						t.Errorf("only %.1f times the ops with a life of a second", short.perCall/o.perCall)
					}
				}
				if tc.pl.step > 0 {
					rates := w.ratesFrom(3*NewPlan(limit).Full+int64(tc.pl.step), int(tc.span-tc.pl.step)/int(time.Second))
					t.Logf("after the step %.2f of the rate each second", rates)
					for i, r := range rates {
						if i >= 3 && (r < 0.8 || r > 1.25) {
							t.Errorf("%.2f of the rate in the %dth second after the step", r, i+1)
						}
					}
				}
			})
		}
	}
}

// ratesFrom returns the units admitted in each second from a time, as a part of the rate.
func (w *world) ratesFrom(from int64, seconds int) []float64 {
	rates := make([]float64, seconds)
	for _, s := range w.spending.spent {
		if i := (s.at - from) / int64(time.Second); s.at >= from && i < int64(seconds) {
			rates[i] += float64(s.n) / float64(w.t.Limit.Rate)
		}
	}
	return rates
}
