package fleet

import (
	"math/rand/v2"
	"slices"
)

// plan returns the calls of each process, in order, for the shapes whose calls the fleet divides: Rush and Groups. It
// returns nil for the others, which have a [stream] for each process.
func (s Scenario) plan(rng *rand.Rand, loads, parts []float64) [][]arrival {
	switch s.Load.Shape {
	case Rush:
		return s.rush(rng, loads)
	case Groups:
		return s.groups(rng, loads, parts)
	}
	return nil
}

// rush gives the processes their calls in turn. Each call is at a random time of its own part of On, because events at
// the same instant have no fixed order.
func (s Scenario) rush(rng *rand.Rand, loads []float64) [][]arrival {
	plan, pick := make([][]arrival, s.Processes), cumulate(loads)
	calls := int64(pick[len(pick)-1]*float64(s.Limit.BurstSize()) + 0.5)
	for i := range calls {
		at := int64(s.Load.Off) + int64(float64(s.Load.On)*(float64(i)+rng.Float64())/float64(calls))
		p := int(i % int64(s.Processes))
		plan[p] = append(plan[p], arrival{at: at, key: pick.draw(rng), cost: s.Load.cost(rng)})
	}
	return s.order(plan)
}

// groups gives each key a group of calls at equal distances, from a random phase. A group goes to one process.
func (s Scenario) groups(rng *rand.Rand, loads, parts []float64) [][]arrival {
	var all []arrival
	for key, load := range loads {
		every := float64(s.Load.Off) / load
		for t := rng.Float64() * every; t < float64(s.Span); t += every {
			all = append(all, arrival{at: int64(t), key: key})
		}
	}
	slices.SortStableFunc(all, arrival.compare)
	plan, pick := make([][]arrival, s.Processes), cumulate(parts)
	for turn, g := range all {
		p := turn % s.Processes
		if !s.Load.InTurn {
			p = pick.draw(rng)
		}
		size := s.Load.MinSize + rng.IntN(s.Load.MaxSize-s.Load.MinSize+1)
		for i := range size {
			at := g.at + int64(s.Load.On)*int64(i)/int64(size)
			plan[p] = append(plan[p], arrival{at: at, key: g.key, cost: s.Load.cost(rng)})
		}
	}
	return s.order(plan)
}

// order sorts the calls of each process, gives them different times, and drops those after the span.
func (s Scenario) order(plan [][]arrival) [][]arrival {
	for p, calls := range plan {
		slices.SortStableFunc(calls, arrival.compare)
		for i := range calls {
			if i > 0 {
				calls[i].at = max(calls[i].at, calls[i-1].at+1)
			}
			if calls[i].at >= int64(s.Span) {
				plan[p] = calls[:i]
				break
			}
		}
	}
	return plan
}

// take returns a function that returns the next call of a list, and false after the last one.
func take(calls []arrival) func() (arrival, bool) {
	return func() (a arrival, ok bool) {
		if len(calls) == 0 {
			return a, false
		}
		a, calls = calls[0], calls[1:]
		return a, true
	}
}
