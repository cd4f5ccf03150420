package main

import "time"

// admission is units that were admitted at a moment between two cells, both
// included.
type admission struct {
	began, ended int
	units        int64
}

func cellOf(d time.Duration) int { return int(d / cellTime) }

// excess is the most units that were admitted above rate × length, over all
// intervals of whole cells in [from, to). It never says too much: a unit counts
// only where it was admitted inside the interval for certain, and whole cells
// leave nothing to round. It may say up to rate × 2 cells too little, which is
// what an interval that starts and ends within cells may hold besides.
//
// The time is the square of the number of cells.
func excess(as []admission, from, to int, rate float64) float64 {
	if to <= from {
		return 0
	}
	byEnd := make([][]admission, to-from)
	for _, a := range as {
		if a.units > 0 && a.began >= from && a.ended < to {
			byEnd[a.ended-from] = append(byEnd[a.ended-from], a)
		}
	}
	perCell, worst := rate*cellTime.Seconds(), 0.0
	for first := from; first < to; first++ {
		units := int64(0)
		for last := first; last < to; last++ {
			for _, a := range byEnd[last-from] {
				if a.began >= first {
					units += a.units
				}
			}
			worst = max(worst, float64(units)-perCell*float64(last-first+1))
		}
	}
	return worst
}
