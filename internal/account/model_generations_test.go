package account

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// The search for the ledger's long generations (hazLong): bursts of 1 to 60 seconds, and processes that want leases of
// different lives, so that generations grow and shrink beside leases that are out.

// drawLong draws the limit, and the waits between events, which are as long as generations.
func drawLong(r *rand.Rand) (limit hybridlimit.Limit, wait func() time.Duration) {
	rate := 1 + r.Int64N(6)
	limit = hybridlimit.TokenBucket(rate, time.Second, rate*[]int64{1, 4, 5, 9, 10, 20, 60}[r.IntN(7)])
	scales := []time.Duration{0, 0, 0, time.Millisecond, 100 * time.Millisecond, time.Second, 4 * time.Second, 9 * time.Second}
	most, still := 1+r.IntN(len(scales)), r.IntN(4)
	return limit, func() time.Duration {
		if r.IntN(4) < still {
			return 0
		}
		if d := scales[r.IntN(most)]; d > 0 {
			return inMicroseconds(limit, time.Duration(r.Int64N(int64(d))))
		}
		return 0
	}
}

// lives makes processes want leases of another life.
func (pl *modelPlan) lives(r *rand.Rand) {
	for range r.IntN(8) {
		at := r.IntN(len(pl.events) + 1)
		pl.events = slices.Insert(pl.events, at, modelEvent{kind: evLife, p: r.IntN(pl.procs), n: r.Int64N(3)})
	}
}

// numberOf returns the number of the generation of 2^span seconds at a time; unmarked: without the length.
func numberOf(at, span int64, unmarked bool) int64 {
	second := at / algo.Generation >> span << span
	if unmarked {
		return second
	}
	return second + span<<40
}

// spoilLedger changes the ledger that an op finds at a time, or the op's number, as the mutants of long generations do.
func (r *modelRedis) spoilLedger(s algo.State, op algo.Op, at int64) (algo.State, algo.Op) {
	each := int64(algo.Generation) << s.Span
	switch r.mutant {
	case mutOneGeneration:
		if at/each != s.Last/each {
			s.Out = [2]int64{}
		}
	case mutShrinksEarly:
		if op.Demand > 0 && op.Div > 0 {
			s.Span = 0
		}
	case mutUnmarked:
		first := op.Gen % (1 << 40)
		for _, ago := range []int64{0, each} {
			if first == numberOf(at-ago, s.Span, true) {
				op.Gen = numberOf(at-ago, s.Span, false)
			}
		}
	}
	return s, op
}
