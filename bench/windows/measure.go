package main

import (
	"math"
	"math/rand/v2"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// trail is the units of the last period, each with its time.
type trail struct{ at []int64 }

// count is how many there are at now, where they are given up again when they
// are a period old, as a log does it.
func (t *trail) count(now int64) int64 {
	for len(t.at) > 0 && now-t.at[0] >= minute {
		t.at = t.at[1:]
	}
	return int64(len(t.at))
}

func (t *trail) add(now int64) { t.at = append(t.at, now) }

// score is how often decisions were wrong, and by how much what they were
// based on.
type score struct {
	calls, admitted int64
	over, farOver   int64   // admitted, while the last period was full; by more than near
	under, farUnder int64   // denied, while it was not
	off             float64 // sum of what the estimate was off, as a part of the truth
	most            int64   // units in the worst period
}

// near is how many units more, or less, in the last period make a decision that
// is wrong one that matters.
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

// row is one traffic under each kind: as a limiter, which counts what it
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
		r.log += admittedByLog(at)
		for k, w := range kinds {
			limit(w, at, &r.limiter[k])
			detect(w, at, &r.detector[k])
		}
	}
	return r
}

// epoch is a time of Redis at which a window begins.
const epoch = 1_763_000_040_000_000

func admittedByLog(at []int64) (sum int64) {
	allow := logged()
	for _, now := range at {
		if allow(now) {
			sum++
		}
	}
	return sum
}

// limit runs a source's calls through a limiter, and holds each decision
// against what the limiter has admitted in the last period: what a log would
// have said in its place.
func limit(w algo.Window, at []int64, to *score) {
	var s algo.State
	var last trail
	one := []int64{1}
	for _, now := range at {
		before := last.count(now)
		next, ans, dirty := w.Apply(s, algo.Op{Asks: one}, now)
		if dirty {
			s = next
		}
		if ans.Granted > 0 {
			last.add(now)
		}
		to.note(ans.Granted > 0, float64(w.Cap-ans.Level)/float64(w.Unit), before, last.count(now))
	}
}

// detect counts every call, admitted or not, and asks of each whether the
// source is above the limit with it.
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
