package main

import (
	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

const (
	// regionsUse is the part of the limit that the fleet admits before a fault and after it.
	regionsUse     = 0.85
	regionsUseBusy = 0.8 // on a busier machine, which leaves calls out
)

// regionsFigures are those of a run with regions.
type regionsFigures struct {
	Excess   reach   // units above rate·t that all regions together admitted with their Redis, and the bound
	Apart    reach   // the same of fallbacks, of the region closest to its bound
	Calm     float64 // the part of the limit that was admitted before the fault
	After    float64 // and after it
	Between  int64   // units that were lost between regions
	Moved    int64   // units that came to a region from others
	Messages int64   // between regions
}

// checkRegions returns the verdict on the calls of all clients.
func checkRegions(run *regionsRun, histories [][]record) *verdict {
	f := &regionsFigures{Moved: run.moved, Messages: run.asks}
	v := &verdict{CPU: benchkit.Round(run.cpu, 2), regionsFigures: f}
	burst, regions := regionLimit.BurstSize(), int64(len(regionNames))
	var all []meter.Span
	alone := make([][]meter.Span, regions)
	var calm, after, calls int64
	for i, history := range histories {
		for _, r := range history {
			if r.kind != recordDecision {
				continue
			}
			calls++
			if r.failed || !r.allowed {
				continue
			}
			span := meter.Span{Begin: r.begin, End: r.end(), Units: int64(r.units)}
			if r.source == hybridlimit.SourceFallback {
				alone[regionOf(i)] = append(alone[regionOf(i)], span)
			} else {
				all = append(all, span)
			}
			calm += unitsIn(run.calm, r)
			after += unitsIn(run.after, r)
		}
	}
	bound := burst
	for _, c := range run.credit { // decision 0074 has the reason for N·C
		bound += regionProcs * c
	}
	under := burst / regionEscrow / regions // that may be on the way to a region
	bound += int64(run.row.forgets) * (run.burst + under)
	f.Excess.raise(meter.WorstSpan(all, float64(regionLimit.Rate)), float64(bound))
	v.want(f.Excess.units <= f.Excess.bound, brokeBound, "%.0f units above rate·t in an interval, want at most %d",
		f.Excess.units, bound)
	for i, spans := range alone {
		share := float64(run.burst + regionProcs)
		units := meter.WorstSpan(spans, float64(regionLimit.Rate/regions))
		f.Apart.raise(units, share)
		v.want(units <= share, brokeBound, "region %s: %.0f units above rate·t by fallbacks, want at most %.0f",
			regionNames[i], units, share)
	}
	load := 0
	for _, n := range regionCalls {
		load += regionProcs * n
	}
	least := regionsUse
	if run.cpu > idleEnough {
		least = regionsUseBusy
	}
	f.Calm = part(calm, run.calm, min(regionLimit.Rate, int64(load)))
	f.After = part(after, run.after, min(regionLimit.Rate, int64(load-run.row.killed*regionCalls[0])))
	v.want(f.Calm >= least, brokeUse, "%.3f of the limit is admitted before the fault, want at least %.2f", f.Calm, least)
	v.want(f.After >= least, brokeUse, "%.3f of the limit is admitted after the fault, want at least %.2f", f.After, least)
	for i, lost := range run.lost {
		f.Between += lost
		v.want(!run.row.apart || lost <= under, brokeAccounting, "%d units are lost on the way to region %s, want at most %d",
			lost, regionNames[i], under)
	}
	v.want(run.failed == "", brokeErrors, "a call returned an error: %s", run.failed)
	v.want(run.unsettled == "", brokeAccounting, "Shutdown could not settle: %s", run.unsettled)
	v.want(calls >= 1000 && f.Moved > 0, "empty", "%d calls, and %d units of other regions: too few to show anything",
		calls, f.Moved)
	return v
}

// unitsIn returns the units of an admission, if it began in a time.
func unitsIn(span [2]int64, r record) int64 {
	if r.begin < span[0] || r.begin >= span[1] {
		return 0
	}
	return int64(r.units)
}

// part returns the part of a rate that units are in a time.
func part(units int64, span [2]int64, perSecond int64) float64 {
	seconds := float64(span[1]-span[0]) / 1e9
	if seconds <= 0 {
		return 0
	}
	return benchkit.Round(float64(units)/seconds/float64(perSecond), 3)
}
