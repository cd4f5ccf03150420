package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// admission is units admitted on one key by a call that ran from begin to end,
// in ns. When in between they count, nobody outside can know.
type admission struct {
	begin, end int64
	units      int64
}

// excess is the most by which admissions exceed rate·(t-s) over all intervals,
// in units: the largest of
//
//	units of calls that lie in [s, t] as a whole - rate·(t-s).
//
// A bound that holds whenever calls count is not broken by it, and a break of
// more than calls straddle is not missed. With a segment tree over s, t going
// up: O(n log n).
func excess(as []admission, perSecond float64) float64 {
	if len(as) == 0 {
		return 0
	}
	rate := perSecond / float64(time.Second)
	starts := make([]int64, len(as))
	for i, a := range as {
		starts[i] = a.begin
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	origin := starts[0]

	t := newRaises(len(starts), func(i int) float64 { return rate * float64(starts[i]-origin) })
	slices.SortFunc(as, func(a, b admission) int { return cmp.Compare(a.end, b.end) })
	worst := 0.0
	for _, a := range as {
		i, _ := slices.BinarySearch(starts, a.begin)
		t.raise(i, float64(a.units)) // every s up to its begin
		// s beyond its end has no admission yet, and would count rate backwards.
		upTo, _ := slices.BinarySearch(starts, a.end+1)
		worst = max(worst, t.most(upTo-1)-rate*float64(a.end-origin))
	}
	return worst
}

// raises is values of which the first so many can be raised, and the largest
// of the first so many be found.
type raises struct {
	size      int
	top, lazy []float64
}

func newRaises(n int, value func(int) float64) *raises {
	t := &raises{size: 1}
	for t.size < n {
		t.size *= 2
	}
	t.top, t.lazy = make([]float64, 2*t.size), make([]float64, 2*t.size)
	for i := range t.size {
		t.top[t.size+i] = math.Inf(-1)
		if i < n {
			t.top[t.size+i] = value(i)
		}
	}
	for i := t.size - 1; i > 0; i-- {
		t.top[i] = max(t.top[2*i], t.top[2*i+1])
	}
	return t
}

// raise adds to the values 0 to last.
func (t *raises) raise(last int, by float64) { t.add(1, 0, t.size-1, last, by) }

func (t *raises) add(node, from, to, last int, by float64) {
	switch {
	case to <= last:
		t.top[node] += by
		t.lazy[node] += by
	case from <= last:
		mid := (from + to) / 2
		t.add(2*node, from, mid, last, by)
		t.add(2*node+1, mid+1, to, last, by)
		t.top[node] = max(t.top[2*node], t.top[2*node+1]) + t.lazy[node]
	}
}

// most is the largest of the values 0 to last.
func (t *raises) most(last int) float64 { return t.find(1, 0, t.size-1, last) }

func (t *raises) find(node, from, to, last int) float64 {
	switch {
	case from > last:
		return math.Inf(-1)
	case to <= last:
		return t.top[node]
	default:
		mid := (from + to) / 2
		return max(t.find(2*node, from, mid, last), t.find(2*node+1, mid+1, to, last)) + t.lazy[node]
	}
}
