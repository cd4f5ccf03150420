package meter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestWorstSpan compares the result with a check of all intervals one by one.
func TestWorstSpan(t *testing.T) {
	seed := testenv.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		var as []meter.Span
		for range 1 + rng.IntN(30) {
			begin := rng.Int64N(100) * int64(time.Millisecond)
			as = append(as, meter.Span{begin, begin + rng.Int64N(20)*int64(time.Millisecond), 1 + rng.Int64N(5)})
		}
		rate := float64(rng.IntN(500))
		want := 0.0
		for _, from := range as {
			for _, to := range as {
				if to.End < from.Begin {
					continue
				}
				units := 0.0
				for _, a := range as {
					if a.Begin >= from.Begin && a.End <= to.End {
						units += float64(a.Units)
					}
				}
				want = max(want, units-rate*float64(to.End-from.Begin)/1e9)
			}
		}
		if got := meter.WorstSpan(as, rate); got < want-1e-6 || got > want+1e-6 {
			t.Fatalf("seed %d: %v of %v at %v, want %v", seed, got, as, rate, want)
		}
	}
	if meter.WorstSpan(nil, 1) != 0 {
		t.Error("WorstSpan of no calls is not 0")
	}
}
