package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// traffic describes the calls of many similar sources.
type traffic struct {
	name, about string // about is empty for attackers, which the tables leave out
	sources     int
	// arrivals returns the times of one source's calls: µs, ascending, within span after from.
	arrivals func(r *rand.Rand, source int, from int64) []int64
}

const (
	periods = 10 // number of minutes in which each source sends
	span    = periods * minute
	second  = minute / 60
)

// traffics are the rows of the tables. Each source of the first four has its own load, from a quarter of the limit to
// four times the limit, uniform on a logarithmic scale. Only the attackers know where the windows begin: they send the
// Rate in the last second of a window, then the Rate in the first second of the next, or four times the Rate for a
// minute, and then nothing for a minute.
var traffics = []traffic{
	{"steady", "evenly, up to a tenth of a gap early or late", 100, steady},
	{"Poisson", "each call independent of the others", 100, func(r *rand.Rand, _ int, from int64) []int64 { return poisson(r, load(r), from) }},
	{"bursts", "1 to 100 calls, 10 ms apart, at random times", 100, bursts},
	{"on and off", "in the mean, twice the load for half a minute, then a pause as long", 100, onOff},
	{"Zipf", "Poisson, the i-th source with 20/i times the limit: one in a hundred is above it", 2000, zipf(20)},
	{"Zipf, light", "the i-th with 2/i times the limit: one in a thousand is above it", 2000, zipf(2)},
	{"at the boundary", "", 50, boundary},
	{"burst, then flood", "", 50, flood},
}

// load returns a random multiple of the limit.
func load(r *rand.Rand) float64 { return math.Pow(2, 4*r.Float64()-2) }

// gap returns the mean time between calls.
func gap(load float64) float64 { return float64(minute/rate) / load }

func steady(r *rand.Rand, _ int, from int64) (at []int64) {
	each := gap(load(r))
	for t := each * r.Float64(); t < float64(span); t += each {
		at = append(at, from+int64(t+each*(r.Float64()-0.5)/5))
	}
	return at
}

func poisson(r *rand.Rand, load float64, from int64) (at []int64) {
	for t := r.ExpFloat64() * gap(load); t < float64(span); t += r.ExpFloat64() * gap(load) {
		at = append(at, from+int64(t))
	}
	return at
}

func zipf(first float64) func(r *rand.Rand, source int, from int64) []int64 {
	return func(r *rand.Rand, i int, from int64) []int64 { return poisson(r, first/float64(i+1), from) }
}

func bursts(r *rand.Rand, _ int, from int64) (at []int64) {
	const most = 100
	mean := gap(load(r)) * (most + 1) / 2
	for t := r.ExpFloat64() * mean; t < float64(span); t += r.ExpFloat64() * mean {
		at = run(at, from+int64(t), 1+r.Int64N(most), second/100)
	}
	slices.Sort(at) // bursts may overlap
	return at
}

func onOff(r *rand.Rand, _ int, from int64) (at []int64) {
	each := gap(2 * load(r))
	for t := 0.0; t < float64(span); t += r.ExpFloat64() * float64(minute) / 2 {
		for until := t + r.ExpFloat64()*float64(minute)/2; t < until; t += each {
			at = append(at, from+int64(t))
		}
	}
	return at
}

// boundary and flood know the clock, and begin where a window begins.
func boundary(r *rand.Rand, _ int, from int64) (at []int64) {
	each := second / rate
	for w := from/minute + 1; (w+3)*minute < from+span; w += 3 {
		border := (w + 1) * minute
		at = run(at, border-second+r.Int64N(each), rate, each)
		at = run(at, border+r.Int64N(each), rate, each)
	}
	return at
}

func flood(r *rand.Rand, _ int, from int64) (at []int64) {
	for w := from/minute + 1; (w+3)*minute < from+span; w += 3 {
		border := (w + 1) * minute
		at = run(at, border-second+r.Int64N(second/rate), rate, second/rate)
		at = run(at, border+r.Int64N(second/rate), 4*rate, minute/rate/4)
	}
	return at
}

// run appends n calls at intervals of each µs.
func run(at []int64, from, n, each int64) []int64 {
	for i := range n {
		at = append(at, from+i*each)
	}
	return at
}
