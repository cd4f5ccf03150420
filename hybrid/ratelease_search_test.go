//go:build search

package hybrid_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestRateLeasesInDrawnWorlds draws fleets, limits, loads and faults. The bound holds, beside a burst and four seconds of
// the rate for each loss of all data, and the units of the fallback. Afterwards the rate is used again, and no unit is owed.
func TestRateLeasesInDrawnWorlds(t *testing.T) {
	rng := testenv.Rand(t)
	for range 60 {
		seed := rng.Uint64()
		synctest.Test(t, func(t *testing.T) { drawnRates(t, rand.New(rand.NewPCG(seed, 0)), seed) })
		if t.Failed() {
			return
		}
	}
}

func drawnRates(t *testing.T, rng *rand.Rand, seed uint64) {
	n, each := 1+rng.IntN(8), int64(5+rng.IntN(60))
	rate := each * int64(n)
	burst := max(int64(n)*2, rate/2+rng.Int64N(rate*5))
	b := redistest.NewBubble(t)
	f := newRateFleet(t, b, n, hybridlimit.TokenBucket(rate, time.Second, burst), hybrid.RateLeaseConfig{})
	f.run([]float64{0.5, 2, 8}[rng.IntN(3)], 6*time.Second)
	losses := 0
	for range 1 + rng.IntN(3) {
		switch rng.IntN(5) {
		case 0:
			b.Kill()
			f.run(2, time.Duration(1+rng.IntN(8))*time.Second)
			b.Restart()
		case 1:
			losses++
			b.Mini.FlushAll()
		case 2:
			l := f.links[rng.IntN(n)]
			l.Pause()
			f.run(2, time.Duration(1+rng.IntN(8))*time.Second)
			l.Resume()
		case 3:
			for _, l := range f.links {
				own := rand.New(rand.NewPCG(rng.Uint64(), 1))
				l.Script(func(int, []string) redistest.Verdict {
					return []redistest.Verdict{
						redistest.Forward(), redistest.DropReply(redistest.ThenClose), redistest.Duplicate(), redistest.DropRequest(redistest.ThenHang),
					}[max(0, own.IntN(9)-5)]
				})
			}
			f.run(2, 4*time.Second)
			for _, l := range f.links {
				l.Script(nil)
			}
		default:
			at := rng.IntN(n)
			if err := f.all[at].Close(); err != nil {
				t.Error(err)
			}
			l, err := f.hubs[at].RateLeases(f.limit, hybrid.RateLeaseConfig{Name: "hot"})
			if err != nil {
				t.Fatal(err)
			}
			f.all[at] = l
		}
		f.run(2, time.Duration(1+rng.IntN(6))*time.Second)
	}
	time.Sleep(3 * time.Second)
	f.run(3, 10*time.Second)
	_, before, _ := f.sums()
	f.run(3, 8*time.Second)
	_, after, _ := f.sums()
	if most := float64(losses)*float64(burst+4*rate) + float64(f.local+int64(n)); f.meter.Excess() > most {
		t.Errorf("seed %d: %.1f units above the bound, want at most %.1f: %d processes, %v, %d losses, %v", seed, f.meter.Excess(), most, n, f.limit, losses, f.sources)
	}
	if used := float64(after-before) / 8 / float64(rate); used < 0.8 {
		t.Errorf("seed %d: %.2f of the rate is used afterwards: %d processes, %v", seed, used, n, f.limit)
	}
	for i, l := range f.all {
		if s := l.Stats(); s.Owed != 0 {
			t.Errorf("seed %d: process %d owes: %+v", seed, i, s)
		}
	}
}
