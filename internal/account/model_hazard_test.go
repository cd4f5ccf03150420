package account

import (
	"math/rand/v2"
	"slices"
	"time"
)

// hazard is a kind of failure in a drawn schedule besides those of the network.
type hazard uint16

const (
	hazCrash    hazard = 1 << iota // crashes, batches refused for good, outages
	hazLoss                        // Redis loses states, envelopes, or all data
	hazClock                       // Redis's clock steps
	hazMembers                     // processes join and leave, heartbeats are lost
	hazFailover                    // Redis goes back to an older copy of its data
	hazPrompt                      // with hazLoss: nothing happens between a loss and the sending of all views
	hazRefusal                     // batches are often refused for good
	hazLimit                       // processes change their limit, each by itself
	hazClass                       // processes are of several classes, and some have none
	hazLong                        // bursts of up to a minute, and processes that want leases of different lives
)

// with adds hazards to the weights of events. If data is lost, no view may be lost: a use of the key that only a view records
// would be forgotten with the view.
func (h hazard) with(r *rand.Rand, weights []int) {
	for k := evWipe; k <= evFailover; k++ {
		weights[k] = 0
	}
	weights[evCrash], weights[evDrop] = 0, 0
	if h&hazCrash != 0 {
		weights[evCrash], weights[evDrop] = r.IntN(2), r.IntN(2)
	}
	weights[evRefused] = 0
	if h&hazRefusal != 0 {
		weights[evDrop], weights[evRefused] = 1+r.IntN(4), 2+r.IntN(8)
	}
	if h&(hazLoss|hazFailover) != 0 {
		weights[evEvict], weights[evExact] = 0, 0
	}
	if h&hazLoss != 0 {
		weights[evWipe], weights[evLoseKey], weights[evLoseEnvelopes] = r.IntN(2), r.IntN(2), r.IntN(2)
		weights[evResync] = r.IntN(4)
	}
	if h&hazClock != 0 {
		weights[evClock] = 1 + r.IntN(2)
	}
	if h&hazMembers != 0 {
		weights[evCredit], weights[evDrop], weights[evBroken] = 0, 0, 0
		weights[evJoin], weights[evDepart], weights[evCrash] = 1+r.IntN(3), r.IntN(3), r.IntN(2)
		weights[evNoBeat], weights[evLoseFleet] = r.IntN(2), r.IntN(2)
	}
	if h&hazFailover != 0 {
		weights[evSave], weights[evFailover] = 2, 1
	}
}

// limits makes processes change to another limit and back, in a schedule that was drawn without such changes.
func (pl *modelPlan) limits(r *rand.Rand) {
	pl.other = pl.limit
	pl.other.Rate = max(1, pl.limit.Rate*[]int64{1, 1, 2}[r.IntN(3)]/[]int64{1, 2, 3}[r.IntN(3)])
	pl.other.Rate = min(pl.other.Rate, pl.limit.Rate)
	pl.other.Burst = max(1, pl.limit.Burst/[]int64{1, 2, 3}[r.IntN(3)])
	for range 1 + r.IntN(8) {
		at := r.IntN(len(pl.events) + 1)
		pl.events = slices.Insert(pl.events, at, modelEvent{kind: evLimit, p: r.IntN(pl.procs)})
	}
}

// drawHazard draws the argument of an event.
func drawHazard(r *rand.Rand, e *modelEvent) {
	switch e.kind {
	case evClock:
		d := []time.Duration{time.Millisecond, time.Second, time.Second, time.Minute, time.Hour}[r.IntN(5)]
		e.n = 1 + r.Int64N(d.Microseconds())
		if r.IntN(2) == 0 {
			e.n = -e.n
		}
	case evNoBeat:
		e.n = 1 + r.Int64N(4)
	}
}

// populate makes the world's processes join and leave. The first half of them have been running for a while.
func (pl *modelPlan) populate(w *world) {
	p := NewPlan(pl.limit)
	credit := func(n int64) int64 { return p.Credit(pl.mode, pl.overshoot, pl.every, n) }
	w.members = &memberBook{credit: credit, plan: p, beats: map[int]pulse{}, groups: map[int]bool{}, paced: pl.paced, classes: pl.hazard&hazClass != 0, lost: -int64(time.Hour)}
	for i, p := range w.procs {
		if p.away = 2*i > len(w.procs); !p.away {
			w.join(p)
		}
	}
	w.advance(5 * int64(time.Second))
}
