package main

import "time"

// cellTime is the resolution in which admissions are placed in time.
const cellTime = 10 * time.Millisecond

// admission is units admitted by calls that began in one cell and ended in
// another, mostly the same. Such a call is decided at some moment between the
// two.
type admission struct {
	began, ended int
	units        int64
}

// excess finds the most units that were admitted above rate × length, over all
// intervals of whole cells. It never says too much: a unit counts only for
// intervals in which it was admitted for certain. It may say up to rate × 2
// cells too little, which is what an interval that starts and ends within cells
// may hold besides.
//
// It looks at one cell after the other. The worst interval that ends with a
// cell begins where it began for the cell before, or with this cell: what would
// be one number for calls that take no time is, here, one for each of the
// starts that a call may straddle. Constant memory, and one addition for each
// start and cell.
type excess struct {
	perCell float64 // units
	from    int     // first cell that counts
	next    int     // cell to be added
	starts  [straddle]float64
	older   float64 // the best of all starts before those
	worst   float64
}

// straddle is how many cells a call may take to be counted: 2 s, a hundred
// times what a decision waits for Redis. One that takes longer is left out.
const straddle = 200

func newExcess(rate float64, from int) *excess {
	return &excess{perCell: rate * cellTime.Seconds(), from: from, next: from}
}

// add takes in the next cell, with all that ended in it.
func (x *excess) add(as []admission) {
	c := x.next
	x.next++
	slot := c % straddle
	x.older = max(x.older, x.starts[slot]) // of cell c - straddle
	x.starts[slot] = 0
	for _, a := range as {
		if a.units <= 0 || a.began < x.from || a.began <= c-straddle {
			continue
		}
		x.older += float64(a.units)
		for s := c - straddle + 1; s <= min(a.began, c); s++ {
			x.starts[mod(s)] += float64(a.units)
		}
	}
	x.older -= x.perCell
	x.worst = max(x.worst, x.older)
	for i := range x.starts {
		x.starts[i] -= x.perCell
		x.worst = max(x.worst, x.starts[i])
	}
}

func mod(cell int) int { return ((cell % straddle) + straddle) % straddle }
