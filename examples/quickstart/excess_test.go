package main

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

func TestExcess(t *testing.T) {
	const rate = 100 // one unit per cell
	for _, tc := range []struct {
		name     string
		as       []admission
		from, to int
		want     float64
	}{
		{"nothing", nil, 0, 100, 0},
		{"no interval", []admission{{1, 1, 50}}, 10, 10, 0},
		{"one cell", []admission{{5, 5, 50}}, 0, 100, 49},
		{"less than the rate", []admission{{5, 5, 1}, {9, 9, 1}}, 0, 100, 0},
		{"what was refilled in between counts", []admission{{5, 5, 50}, {24, 24, 30}}, 0, 100, 60},
		{"a long pause forgives", []admission{{5, 5, 50}, {80, 80, 60}}, 0, 100, 59},
		{"a call over cells needs all of them", []admission{{5, 9, 50}}, 0, 100, 45},
		{"a call that began before the phase", []admission{{5, 9, 50}}, 6, 100, 0},
		{"a call that ended after the phase", []admission{{5, 9, 50}}, 0, 9, 0},
		{"a call that ends with the phase", []admission{{5, 9, 50}}, 0, 10, 45},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := excess(tc.as, tc.from, tc.to, rate); got != tc.want {
				t.Errorf("excess = %v, want %v", got, tc.want)
			}
		})
	}
}

// The definition, word for word.
func TestExcessIsTheWorstInterval(t *testing.T) {
	random := testenv.Rand(t)
	for range 200 {
		const cells, rate = 30, 300 // three units per cell
		var as []admission
		for range random.IntN(40) {
			began := random.IntN(cells)
			as = append(as, admission{began, min(began+random.IntN(3), cells), random.Int64N(20)})
		}
		from, to := random.IntN(cells), random.IntN(cells)
		want := 0.0
		for first := from; first < to; first++ {
			for last := first; last < to; last++ {
				units := int64(0)
				for _, a := range as {
					if a.began >= first && a.ended <= last {
						units += a.units
					}
				}
				want = max(want, float64(units-3*int64(last-first+1)))
			}
		}
		if got := excess(as, from, to, rate); got != want {
			t.Fatalf("excess(%v, %d, %d) = %v, want %v", as, from, to, got, want)
		}
	}
}
