package hybridlimit

import (
	"fmt"
	"math/bits"
	"time"
)

// exactInt is the largest magnitude that a float64, and so a Lua number,
// counts to without gaps.
const exactInt = 1 << 53

// Validate reports everything that is wrong with the limit as one
// *InvalidError, or nil.
//
// Besides the obvious it refuses limits whose arithmetic would not be exact in
// a float64, which counts without gaps to 2⁵³:
//
//   - Buckets and the queue count in sub-units: with g = gcd(Rate, Period in
//     µs), one unit is Period/g sub-units, of which Rate/g come back each µs. A
//     bucket in debt spans two bursts, and 2·Burst·Period/g + Rate/g must not
//     exceed 2⁵³. One a day and ten million a second are far inside; a large
//     prime rate over a long period is not, and a rounder rate is.
//   - The fixed window and the sliding log count units: Rate must be below 2⁵³,
//     and Period at most 2⁵² µs (142 years), so that a window that begins
//     today ends exactly.
//   - The sliding window counts units and parts of a window at once: its
//     estimate cur + prev·(1 − f) is kept as cur·Period + prev·(Period − t), t
//     µs into the window, with Period in µs. That is at most 2·Rate·Period, so
//     Rate·Period must not exceed 2⁵². A million an hour is inside; in a day
//     52 124 is the most, and in 30 days 1 737.
//
// AlgUnlimited and AlgBlocked have no arithmetic, and take no Rate, Period or
// Burst.
func (l Limit) Validate() error {
	var bad Violations
	l.violations(&bad)
	return bad.Err("hybridlimit")
}

func (l Limit) violations(bad *Violations) {
	switch {
	case l.Algorithm.stateless():
		l.statelessViolations(bad)
		return
	case l.Algorithm >= algorithms:
		bad.Add("Limit.Algorithm", l.Algorithm, "is not an algorithm")
	}
	if l.Rate < 1 {
		bad.Add("Limit.Rate", l.Rate, "must be at least 1")
	}
	switch {
	case l.Period < time.Microsecond:
		bad.Add("Limit.Period", l.Period, "must be at least 1µs")
	case l.Period%time.Microsecond != 0:
		bad.Add("Limit.Period", l.Period, "must be a whole number of µs")
	}
	if l.Burst < 0 {
		bad.Add("Limit.Burst", l.Burst, "must not be negative")
	}
	if l.Algorithm.windowed() && l.Burst != 0 && l.Burst != l.Rate {
		bad.Add("Limit.Burst", l.Burst, "must be 0 or Rate: a window has no burst of its own")
	}
	switch {
	case len(*bad) > 0:
	case l.Algorithm == AlgSlidingWindow:
		l.estimateViolations(bad)
	case l.Algorithm.windowed():
		l.countViolations(bad)
	default:
		l.bucketViolations(bad)
	}
}

func (l Limit) statelessViolations(bad *Violations) {
	const problem = "must be 0: a limit that is %v has none"
	if l.Rate != 0 {
		bad.Add("Limit.Rate", l.Rate, fmt.Sprintf(problem, l.Algorithm))
	}
	if l.Period != 0 {
		bad.Add("Limit.Period", l.Period, fmt.Sprintf(problem, l.Algorithm))
	}
	if l.Burst != 0 {
		bad.Add("Limit.Burst", l.Burst, fmt.Sprintf(problem, l.Algorithm))
	}
}

// bucketViolations bounds the sub-units of a bucket in debt.
func (l Limit) bucketViolations(bad *Violations) {
	period := int64(l.Period / time.Microsecond)
	g := gcd(l.Rate, period)
	unit, refill := period/g, l.Rate/g
	if hi, lo := bits.Mul64(uint64(l.BurstSize()), uint64(unit)); hi != 0 || lo > (exactInt-uint64(min(refill, exactInt)))/2 {
		bad.Add("Limit", l.String(), fmt.Sprintf(
			"needs counts above 2⁵³ (one unit is %d sub-units): use a smaller burst, or a rate and period with a larger common divisor", unit))
	}
}

// countViolations bounds units and instants. Rate itself stays below 2⁵³: a
// float64 takes 2⁵³ + 1 for 2⁵³, so count + n ≤ Rate would hold at the end of
// the range when it does not.
func (l Limit) countViolations(bad *Violations) {
	if l.Rate >= exactInt {
		bad.Add("Limit.Rate", l.Rate, "must be below 2⁵³ (9007199254740992)")
	}
	if l.Period/time.Microsecond > exactInt/2 {
		bad.Add("Limit.Period", l.Period, "must be at most 2⁵² µs (142 years)")
	}
}

// estimateViolations bounds the sliding window's estimate of two full windows.
func (l Limit) estimateViolations(bad *Violations) {
	if most := exactInt / 2 / int64(l.Period/time.Microsecond); l.Rate > most {
		bad.Add("Limit", l.String(), fmt.Sprintf(
			"needs counts above 2⁵³: a window of %v takes at most %d units; use a smaller rate, a shorter window or another algorithm", l.Period, most))
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
