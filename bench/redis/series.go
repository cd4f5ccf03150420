package main

import "slices"

// series is a measurement's rounds.
type series[T any] []T

// median is the middle of one figure over the rounds, of two middle ones the
// mean. One round that somebody else's work has slowed down does not move it.
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
