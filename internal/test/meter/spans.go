package meter

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Span is a call with a known begin and end, in ns. It was decided at an unknown moment between the two.
type Span struct {
	Begin, End int64
	Units      int64 // admitted
}

// WorstSpan returns the largest excess over a rate in units: the maximum, over all intervals [s, t], of
//
//	units of the calls that lie in [s, t] as a whole - rate·(t-s).
//
// It is never too large: a fleet that keeps a bound at every moment of decision never exceeds it here. It misses at
// most the units of calls that straddle s or t. It sorts the calls.
//
// Calls are processed in the order of their ends. For each begin s the function keeps the units of the calls since s.
// When all later calls begin after s, the value of s and the values of earlier begins grow equally, so only the largest
// is kept.
func WorstSpan(calls []Span, perSecond float64) float64 {
	slices.SortFunc(calls, func(a, b Span) int { return cmp.Compare(a.End, b.End) })
	first := make([]int64, len(calls)+1) // the earliest begin from here on
	first[len(calls)] = math.MaxInt64
	for i := len(calls) - 1; i >= 0; i-- {
		first[i] = min(calls[i].Begin, first[i+1])
	}
	if len(calls) == 0 {
		return 0
	}
	origin := first[0]
	cost := func(at int64) float64 { return perSecond / float64(time.Second) * float64(at-origin) }

	type start struct {
		at    int64
		value float64 // units of the calls that began at or after at, plus the cost of at
	}
	var open []start // by time
	closed, worst := math.Inf(-1), 0.0
	for i, c := range calls {
		at, found := slices.BinarySearchFunc(open, c.Begin, func(s start, begin int64) int { return cmp.Compare(s.at, begin) })
		if !found {
			value := cost(c.Begin)
			if at < len(open) { // calls that began later have already ended
				value += open[at].value - cost(open[at].at)
			}
			open = slices.Insert(open, at, start{c.Begin, value})
		}
		for j := range open[:at+1] {
			open[j].value += float64(c.Units)
		}
		closed += float64(c.Units)
		best := closed
		for _, s := range open {
			if s.at <= c.End { // a later begin would count the rate backwards
				best = max(best, s.value)
			}
		}
		worst = max(worst, best-cost(c.End))
		for len(open) > 0 && open[0].at < first[i+1] {
			closed = max(closed, open[0].value)
			open = open[1:]
		}
	}
	return worst
}
