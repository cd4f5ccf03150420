package main

import (
	"fmt"
	"math"
)

// bound is what was measured beside what is promised, as the page shows it.
type bound struct {
	Name     string  `json:"name"`     // shared, alone, naive
	Measured float64 `json:"measured"` // units above rate × length in the worst interval
	Allowed  float64 `json:"allowed"`  // 0: nothing is promised
	Why      string  `json:"why"`      // what Allowed is made of, or why there is none
	Verdict  string  `json:"verdict"`  // holds, broken, none
}

// watch measures how far the fleet gets above its rate, over all intervals
// since it was made, and holds that against the guarantees of package hybrid.
type watch struct {
	settings settings
	from     int // first cell
	shared   *excess
	alone    *excess // of the last outage; nil: there was none
	naive    *excess
	waiting  placed // ended in cells to come

	processes int   // most that shared the limit at once
	credit    int64 // the largest C of any process
	unsettled int64 // processes that crashed, or ended without Redis: each leaves at most C that nobody has counted
	lost      bool  // Redis has lost its memory: the guarantee's first condition
	known     int64 // of the outage: the smallest N that a process works with
	steady    bool  // of the outage: Redis answered nobody all the time
	disturbed bool  // of the outage: a process began in it
}

// newWatch counts from a cell on.
func newWatch(s settings, from int) *watch {
	return &watch{
		settings: s, from: from, shared: newExcess(float64(s.Rate), from), naive: newExcess(float64(s.Rate), from),
		processes: s.Processes, credit: s.credit(int64(s.Processes)),
	}
}

// fleet notes how many processes share the limit, and C.
func (w *watch) fleet(processes int, credit int64) {
	w.processes, w.credit = max(w.processes, processes), max(w.credit, credit)
}

// outage begins to count what processes admit alone. known is the smallest N
// that one of them has.
func (w *watch) outage(now int, known int64) {
	w.known, w.steady, w.disturbed = max(known, 1), true, false
	w.alone = newExcess(float64(w.settings.Rate)*w.aloneFactor(), max(now, w.from))
}

// aloneFactor is the shares together, in limits: one, or more where a process
// takes the fleet for smaller than it is, or shares are below the floor of one
// unit.
func (w *watch) aloneFactor() float64 {
	n := float64(w.processes)
	return max(1, n/float64(w.known), n/float64(w.settings.Burst))
}

// add takes in all cells up to now.
func (w *watch) add(p placed, now int) {
	w.waiting.add(p)
	w.waiting.shared = feedTo(w.shared, w.waiting.shared, now)
	w.waiting.alone = feedTo(w.alone, w.waiting.alone, now)
	w.waiting.naive = feedTo(w.naive, w.waiting.naive, now)
}

// feedTo adds the cells before now and returns what belongs to later ones. What
// was noted too late for its cell is taken for having ended in the next that is
// open: it counts in fewer intervals.
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

// bounds is what there is to show.
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
		shared.Why += "; promised with Redis's memory intact, and it was lost"
	}
	all := []bound{shared}
	if w.alone != nil {
		alone := bound{Name: "alone", Measured: w.alone.worst}
		switch {
		case w.disturbed:
			alone.Verdict, alone.Why = "none", "the fleet was changed during the outage: a new process begins with a whole share"
		case !w.steady:
			alone.Verdict, alone.Why = "none", "Redis answers, but later than MaxWait (20ms)"
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
			Why: "each process admits all that it last saw; without Redis, the whole limit",
		})
	}
	return all
}

func (b *bound) judge() {
	b.Verdict = "holds"
	if b.Measured > b.Allowed+1e-6 { // rates are not always whole per cell
		b.Verdict = "broken"
	}
}
