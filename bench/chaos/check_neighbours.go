package main

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
)

// checkNeighbours compares the other limiters of each hub, of every algorithm in every mode, with their promises.
func (v *verdict) checkNeighbours(e *evidence) {
	var fleet []neighbours.Report
	var of neighbours.World
	for _, w := range e.clients {
		if w.killed {
			of.Crashes, of.Drops = of.Crashes+1, true
		}
		fleet = append(fleet, w.last.Beside)
	}
	of.Losses = int(math.Ceil(e.allowed.seconds))
	of.Drops = of.Drops || of.Losses > 0
	for _, broken := range neighbours.Check(of, fleet) {
		v.found(brokeBeside, "%s", broken)
	}
}
