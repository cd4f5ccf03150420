package main

import (
	"math"
	"math/rand/v2"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// trail has the times of the units of the last period.
type trail struct{ at []int64 }

// count returns the number of units at now. Like a log, it drops units that are a period old.
func (t *trail) count(now int64) int64 {
	for len(t.at) > 0 && now-t.at[0] >= minute {
		t.at = t.at[1:]
	}
	return int64(len(t.at))
}

func (t *trail) add(now int64) { t.at = append(t.at, now) }

// score counts wrong decisions, and measures the error of the estimates behind them.
type score struct {
	calls, admitted int64
	over, farOver   int64   // admitted although the last period was full; by at least near units
	under, farUnder int64   // denied although it was not full; by more than near units
	off             float64 // sum of the relative errors of the estimate
	most            int64   // units in the worst period
}

// near is the difference to the limit, in units of the last period, that
// separates harmless wrong decisions from serious ones.
const near = rate / 20

func (s *score) note(allowed bool, estimate float64, before, now int64) {
	s.calls++
	switch {
	case allowed && before >= rate:
		s.over++
		if before >= rate+near {
			s.farOver++
		}
	case !allowed && before < rate:
		s.under++
		if before < rate-near {
			s.farUnder++
		}
	}
	if allowed {
		s.admitted++
	}
	s.most = max(s.most, now)
	if now > 0 {
		s.off += math.Abs(estimate-float64(now)) / float64(now)
	}
}

// offBy returns the mean relative error of the estimate after a call, in per cent.
func (s score) offBy() float64 { return 100 * s.off / float64(s.calls) }

// row has the scores of one kind of traffic, for each kind of window: as a limiter, which counts the calls that it
// admits, and as a detector, which counts every call.
type row struct {
	traffic
	log      int64 // admitted by the log
	calls    int64
	limiter  []score // of kinds
	detector []score
}

func measure(t traffic, seed uint64) row {
	r := row{traffic: t, limiter: make([]score, len(kinds)), detector: make([]score, len(kinds))}
	for i := range t.sources {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		at := t.arrivals(rng, i, epoch+rng.Int64N(minute))
		r.calls += int64(len(at))
		r.log += int64(len(slidingLog.admitted(at)))
		for k, w := range kinds {
			limit(w, at, &r.limiter[k])
			detect(w, at, &r.detector[k])
		}
	}
	return r
}

// epoch is a time of Redis's clock at which a window begins.
const epoch = 1_763_000_040_000_000

// limit runs the calls of a source through a limiter. It compares each decision
// with that of a log with the same admissions.
func limit(w algo.Window, at []int64, to *score) {
	var last trail
	apply := applied(w)
	for _, now := range at {
		before := last.count(now)
		ans := apply(now)
		if ans.Granted > 0 {
			last.add(now)
		}
		to.note(ans.Granted > 0, float64(w.Cap-ans.Level)/float64(w.Unit), before, last.count(now))
	}
}

// detect counts every call, admitted or not. For each call it checks whether
// the window reports the source as above its limit.
func detect(w algo.Window, at []int64, to *score) {
	var last trail
	number, cur, prev := int64(0), 0.0, 0.0
	for _, now := range at {
		if n := w.Number(now); n != number {
			if prev = 0; n == number+1 {
				prev = cur
			}
			number, cur = n, 0
		}
		before := last.count(now)
		last.add(now)
		cur++
		estimate := cur
		if w.Sliding {
			estimate += prev * (1 - float64(now%minute)/float64(minute))
		}
		to.note(estimate <= float64(rate), estimate, before, before+1)
	}
}
