package main

import "slices"

// series has the rounds of a measurement.
type series[T any] []T

// median returns the median of one figure over the rounds. A single round that
// other programs have slowed down does not change it much.
func (s series[T]) median(of func(T) float64) float64 {
	if len(s) == 0 {
		return 0
	}
	v := make([]float64, len(s))
	for i, x := range s {
		v[i] = of(x)
	}
	slices.Sort(v)
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}
