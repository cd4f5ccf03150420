package fleet

import (
	"math"
	"time"
)

// hotRatio is a control loop: each process reports once a second how many calls it was offered and has admitted, and
// hears the probability with which it admits calls until its next report. Redis has the offered calls of this second
// and the last one, and a bucket that goes into debt. A full bucket raises the probability, and debt lowers it.
//
// With a cap, a process admits in one interval at most twice what it admitted in the last one, or its share of the rate.
// So a fleet that wakes up admits less before it hears.
type hotRatio struct {
	w      *hotWorld
	capped bool
	procs  []ratioProcess

	// In Redis:
	second  int64
	offered [2]float64 // in this second and in the last one
	level   float64    // units
	last    int64      // ns
}

type ratioProcess struct {
	probability       float64
	offered, admitted float64 // since the last report
	most              float64 // admitted until the next report, with a cap
}

const (
	ratioEvery = int64(time.Second)
	ratioRepay = 2 * time.Second // the time in which debt is paid back
	ratioDebt  = 20              // the deepest debt, in bursts
)

func newHotRatio(w *hotWorld, capped bool) *hotRatio {
	h := &hotRatio{w: w, capped: capped, level: float64(w.s.Limit.Burst), procs: make([]ratioProcess, w.s.Processes)}
	for i := range h.procs {
		h.procs[i] = ratioProcess{probability: 1, most: h.share()}
		w.After(w.rnd.Int64N(ratioEvery), func() { h.report(i) })
	}
	return h
}

// share returns a process's part of the units of an interval.
func (h *hotRatio) share() float64 { return perSecond(h.w.s.Limit) / float64(h.w.s.Processes) }

func (h *hotRatio) call(i int) {
	p := &h.procs[i]
	p.offered++
	if h.capped && p.admitted >= max(1, p.most) || p.probability < 1 && h.w.rnd.Float64() >= p.probability {
		return
	}
	p.admitted++
	h.w.admit(i)
}

func (h *hotRatio) report(i int) {
	p := &h.procs[i]
	h.w.After(ratioEvery, func() { h.report(i) })
	offered, admitted, answer := p.offered, p.admitted, 1.0
	p.offered, p.admitted = 0, 0
	h.w.exchange(&h.w.redis, func() { answer = h.count(offered, admitted) }, func() {
		p.probability, p.most = answer, max(2*admitted, h.share())
	})
}

// count runs a report in Redis, and returns the probability.
func (h *hotRatio) count(offered, admitted float64) float64 {
	rate, burst := perSecond(h.w.s.Limit), float64(h.w.s.Limit.Burst)
	if second := h.w.Now / ratioEvery; second != h.second {
		if h.offered[1] = h.offered[0]; second > h.second+1 {
			h.offered[1] = 0
		}
		h.offered[0], h.second = 0, second
	}
	h.offered[0] += offered
	h.level = math.Min(burst, h.level+rate*float64(h.w.Now-h.last)/1e9) - admitted
	h.level, h.last = math.Max(h.level, -ratioDebt*burst), h.w.Now
	demand := math.Max(h.offered[0], h.offered[1])
	if demand == 0 {
		return 1
	}
	return math.Min(1, math.Max(0, (rate+h.level/ratioRepay.Seconds())/demand))
}
