package account

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestDemandConverges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, tc := range []struct {
		name string
		rate float64 // calls per second
		cost int64
		gap  func() float64 // mean 1
		slop float64        // permitted error of the estimate's mean over five seconds
	}{
		{"regular", 100, 1, func() float64 { return 1 }, 0.02},
		{"Poisson", 100, 1, rnd.ExpFloat64, 0.15},
		{"Poisson, many", 10_000, 1, rnd.ExpFloat64, 0.03},
		{"Poisson, costly", 100, 50, rnd.ExpFloat64, 0.15},
		{"once a second", 1, 1, func() float64 { return 1 }, 0.7},
	} {
		var d demand
		now, sum, count := sec, 0.0, 0.0
		for now < 15*sec {
			now += max(1, int64(tc.gap()*1e9/tc.rate))
			d.note(tc.cost, now)
			if now > 10*sec {
				sum, count = sum+d.perSecond(now), count+1
			}
		}
		want := tc.rate * float64(tc.cost)
		if got := sum / count; math.Abs(got-want) > tc.slop*want {
			t.Errorf("%s: %.1f a second, want %.1f", tc.name, got, want)
		}
	}
}

// Leases are sized by this estimate, and the unspent part of a lease is lost. So the estimate must not jump at a first call.
func TestDemandOfAYoungKeyIsConservative(t *testing.T) {
	for _, cost := range []int64{1, 3, 1000} {
		var d demand
		d.note(cost, sec)
		for _, later := range []int64{0, 1, ms, 100 * ms} {
			if got := d.perSecond(sec + later); got > 0 {
				// Regression: after one call of cost 100 the estimate was 85 000 calls per second, because each unit counted as
				// a call.
				t.Errorf("one call of cost %d gives an estimate of %.0f a second %d ns later, want 0", cost, got, later)
			}
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	over := 0
	for range 1000 {
		var d demand
		now := sec
		for range 10 {
			d.note(1, now)
			now += int64(rnd.ExpFloat64() * 10e6) // 100 per second
		}
		if d.perSecond(now) > 100 {
			over++
		}
	}
	if over > 150 { // 7 % of a normal distribution are above 1.5 σ
		t.Errorf("after ten calls %d estimates of 1000 are above the truth", over)
	}
}

func TestDemandFades(t *testing.T) {
	var d demand
	for i := range int64(1000) {
		d.note(1, sec+i*ms)
	}
	if got := d.perSecond(30 * sec); got > 1e-6 {
		t.Errorf("%g a second after half a minute of silence", got)
	}
	if got := (&demand{}).perSecond(sec); got != 0 {
		t.Errorf("%g a second for a key without calls, want 0", got)
	}
}

// TestDemandSpreadsCalls counts units that the fast path has spent as calls of the average cost, also those of one tick.
//
// Regression: all units of one tick counted as one call. A call of Stats right after 17 calls halved their demand, so that
// the process was idle 200 ms later.
func TestDemandSpreadsCalls(t *testing.T) {
	for _, cost := range []int64{1, 5} {
		for _, after := range []int64{-ms, 0, 1} {
			var one, all demand
			for i := range int64(16) {
				if one.note(cost, sec); i < 4 {
					all.note(cost, sec)
				}
			}
			all.spread(12*cost, sec+after)
			if got, want := all.perSecond(2*sec), one.perSecond(2*sec); math.Abs(got-want) > 0.01*want {
				t.Errorf("cost %d, %d ns later: %.2f a second, want %.2f", cost, after, got, want)
			}
		}
	}
}

func TestDemandIsANumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d demand
		now := rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "start")
		for range rapid.IntRange(1, 20).Draw(t, "notes") {
			note := rapid.SampledFrom([]func(*demand, int64, int64){(*demand).note, (*demand).spread}).Draw(t, "note")
			note(&d, rapid.Int64Range(0, math.MaxInt64).Draw(t, "n"), now)
			now += rapid.Int64Range(-sec, sec*3600).Draw(t, "step") // also backward: two locks, two clocks
			if got := d.perSecond(now); math.IsNaN(got) || math.IsInf(got, 0) || got < 0 {
				t.Fatalf("%v: %+v", got, d)
			}
		}
	})
}

// The demand of a key with a higher cost per call varies more, so less of it is leased.
func TestSteadyDemand(t *testing.T) {
	for _, tc := range []struct{ cost, want float64 }{{1, 100}, {4, 90}, {25, 60}, {100, 10}, {400, 0}} {
		d := demand{sum: 100, sq: float32(100 * tc.cost), at: 9 * sec}
		if got := d.steady(9 * sec); math.Abs(got-tc.want) > 0.5 {
			t.Errorf("100 a second in calls of %g: %g, want %g", tc.cost, got, tc.want)
		}
	}
}
