package main

import "time"

// cellTime is the resolution of the times of admissions.
const cellTime = 10 * time.Millisecond

// admission is units admitted by calls that began in one cell and ended in another, mostly the same one. The decision
// was at some time in between.
type admission struct {
	began, ended int
	units        int64
}

// excess finds the most units admitted above rate × length, over all intervals of whole cells. It never overstates: a
// unit counts only for intervals in which it was certainly admitted. It may understate by up to rate × 2 cells, the
// part of an interval that starts and ends within cells.
//
// It processes the cells in order. The worst interval that ends with a cell begins where the worst interval of the
// previous cell began, or with this cell. For calls without duration one number would be enough. Here there is one
// number for each start that a call may straddle. It needs constant memory, and one addition for each start and cell.
type excess struct {
	perCell float64 // units
	from    int     // first cell that counts
	next    int     // the next cell to add
	starts  [straddle]float64
	older   float64 // the largest value of all earlier starts
	worst   float64
}

// straddle is the largest number of cells of a counted call: 2 s, a hundred times the wait of a decision for Redis. A
// longer call is left out.
const straddle = 200

func newExcess(rate float64, from int) *excess {
	return &excess{perCell: rate * cellTime.Seconds(), from: from, next: from}
}

// add adds the next cell, with the admissions that ended in it.
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
