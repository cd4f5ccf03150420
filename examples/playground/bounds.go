package main

import (
	"fmt"
	"math"
	"time"
)

// bound is a measured excess with the promised bound, as the page shows it.
type bound struct {
	Name     string  `json:"name"`     // shared, alone, naive
	Measured float64 `json:"measured"` // units above rate × time in the worst interval
	Allowed  float64 `json:"allowed"`  // 0: there is no promise
	Why      string  `json:"why"`      // the parts of Allowed, or the reason why there is no promise
	Verdict  string  `json:"verdict"`  // holds, broken, none
}

// watch measures the excess of the fleet over its rate, over all intervals since it was made, and compares it with the
// guarantees of package hybrid.
type watch struct {
	settings settings
	from     int // first cell
	shared   *excess
	alone    *excess // of the last outage; nil: no outage yet
	naive    *excess
	waiting  placed // admissions that ended in later cells

	processes int   // largest number of processes that shared the limit
	credit    int64 // the largest C of any process
	unsettled int64 // processes that crashed, or ended without Redis: each leaves at most C uncounted units
	lost      bool  // Redis has lost its memory, which violates the first condition of the guarantee
	known     int64 // of the outage: the smallest N among the processes
	steady    bool  // of the outage: Redis answered no process at any time
	disturbed bool  // of the outage: a process began during it
}

// newWatch returns a watch that counts from the given cell on.
func newWatch(s settings, from int) *watch {
	return &watch{
		settings: s, from: from, shared: newExcess(float64(s.Rate), from), naive: newExcess(float64(s.Rate), from),
		processes: s.Processes, credit: s.credit(int64(s.Processes)),
	}
}

// fleet records the number of processes that share the limit, and C.
func (w *watch) fleet(processes int, credit int64) {
	w.processes, w.credit = max(w.processes, processes), max(w.credit, credit)
}

// outage begins to count the units that processes admit alone. known is the smallest N among them.
func (w *watch) outage(now int, known int64) {
	w.known, w.steady, w.disturbed = max(known, 1), true, false
	w.alone = newExcess(float64(w.settings.Rate)*w.aloneFactor(), max(now, w.from))
}

// aloneFactor returns the sum of the shares, in limits. It is one, or more if a process underestimates the fleet, or if
// shares are below their minimum of one unit.
func (w *watch) aloneFactor() float64 {
	n := float64(w.processes)
	return max(1, n/float64(w.known), n/float64(w.settings.Burst))
}

// add adds all cells up to now.
func (w *watch) add(p placed, now int) {
	w.waiting.add(p)
	w.waiting.shared = feedTo(w.shared, w.waiting.shared, now)
	w.waiting.alone = feedTo(w.alone, w.waiting.alone, now)
	w.waiting.naive = feedTo(w.naive, w.waiting.naive, now)
}

// feedTo adds the cells before now and returns the admissions of later cells. An admission that was recorded too late
// for its cell is counted in the next open cell, so it counts in fewer intervals.
func feedTo(x *excess, as []admission, now int) []admission {
	if x == nil {
		return nil
	}
	byCell := map[int][]admission{}
	var later []admission
	for _, a := range as {
		at := max(a.ended, x.next)
		if at >= now {
			later = append(later, a)
			continue
		}
		byCell[at] = append(byCell[at], a)
	}
	for x.next < now {
		x.add(byCell[x.next])
	}
	return later
}

// bounds returns the bounds to show.
func (w *watch) bounds() []bound {
	others := int64(w.processes - 1)
	shared := bound{
		Name: "shared", Measured: w.shared.worst,
		Allowed: float64(w.settings.Burst + (others+w.unsettled)*w.credit),
		Why:     fmt.Sprintf("burst %d + credit %d × %d", w.settings.Burst, others, w.credit),
	}
	if w.unsettled > 0 {
		shared.Why += fmt.Sprintf(" + %d crashed or ended without Redis × %d", w.unsettled, w.credit)
	}
	shared.judge()
	if shared.Verdict == "broken" && w.lost {
		shared.Verdict = "none"
		shared.Why += "; the promise requires Redis's memory, which was lost"
	}
	all := []bound{shared}
	if w.alone != nil {
		alone := bound{Name: "alone", Measured: w.alone.worst, Verdict: "none"}
		switch {
		case w.disturbed:
			alone.Why = "the fleet was changed during the outage: a new process begins with a whole share"
		case !w.steady:
			alone.Why = "Redis answers, but later than MaxWait (20ms)"
		default:
			alone.Allowed = math.Ceil(float64(w.settings.Burst) * w.aloneFactor())
			alone.Why = fmt.Sprintf("%d × burst/%d", w.processes, w.known)
			alone.judge()
		}
		all = append(all, alone)
	}
	if w.settings.Naive {
		all = append(all, bound{
			Name: "naive", Measured: w.naive.worst, Verdict: "none",
			Why: "each process admits all units that it saw last; without Redis, the whole limit",
		})
	}
	return all
}

func (b *bound) judge() {
	b.Verdict = "holds"
	if b.Measured > b.Allowed+1e-6 { // the rate per cell is not always a whole number
		b.Verdict = "broken"
	}
}

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
