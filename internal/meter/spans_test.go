package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

// TestExcess compares with all intervals tried one by one.
func TestExcess(t *testing.T) {
	seed := testenv.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		var as []admission
		for range 1 + rng.IntN(30) {
			begin := rng.Int64N(100) * int64(time.Millisecond)
			as = append(as, admission{begin, begin + rng.Int64N(20)*int64(time.Millisecond), 1 + rng.Int64N(5)})
		}
		rate := float64(rng.IntN(500))
		want := 0.0
		for _, from := range as {
			for _, to := range as {
				if to.end < from.begin {
					continue
				}
				units := 0.0
				for _, a := range as {
					if a.begin >= from.begin && a.end <= to.end {
						units += float64(a.units)
					}
				}
				want = max(want, units-rate*float64(to.end-from.begin)/1e9)
			}
		}
		if got := excess(as, rate); got < want-1e-6 || got > want+1e-6 {
			t.Fatalf("seed %d: %v of %v at %v, want %v", seed, got, as, rate, want)
		}
	}
	if excess(nil, 1) != 0 {
		t.Error("nothing is more than nothing")
	}
}
