package local

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
)

// arith is what the buckets of one limit share, and the questions that
// rate.Limiter does not answer without taking tokens. Reserve and Cancel would
// answer them too, but a concurrent caller sees the bucket empty in between,
// and Cancel gives back only part when a later reservation exists.
type arith struct {
	perSecond rate.Limit
	burst     int64 // fits an int
}

func newArith(l hybridlimit.Limit) arith {
	return arith{
		perSecond: rate.Limit(float64(l.Rate) / l.Period.Seconds()),
		burst:     l.BurstSize(),
	}
}

func (a arith) newLimiter() *rate.Limiter {
	return rate.NewLimiter(a.perSecond, int(a.burst))
}

// nanos is how long the missing tokens take to come back, in ns. The division
// comes first, as in rate.Limiter: the results must be the same to the bit.
func (a arith) nanos(missing float64) float64 {
	return missing / float64(a.perSecond) * float64(time.Second)
}

// admits is rate.Limiter's own rule for n ≤ burst: the wait, cut to whole
// nanoseconds, is 0.
func (a arith) admits(tokens float64, n int64) bool {
	missing := float64(n) - tokens
	return missing <= 0 || a.nanos(missing) < 1
}

// remaining is the largest n that would be admitted. It is ⌊tokens⌋ but for
// that nanosecond: 0.9999999999 tokens admit a call of cost 1, and a caller who
// is told 0 would not make it.
func (a arith) remaining(tokens float64) int64 {
	perNano := float64(a.perSecond) / float64(time.Second)
	n := min(int64(math.Floor(tokens+perNano))+1, a.burst)
	for n > 0 && !a.admits(tokens, n) { // at most three times
		n--
	}
	return max(n, 0)
}

// maxWait ends a search that a full bucket always ends before: Validate passes
// 142 years to full at most, this is 146. (From a burst of debt it is twice as
// long, and there the rounded quotient has to do.) A loop under a lock has a
// bound of its own.
const maxWait = hybridlimit.Never / 2

// wait is how long after now lim, which holds tokens now, admits n ≤ burst. The
// caller keeps others from lim meanwhile.
//
// The quotient here and the sums that AllowN will make round differently, so lim
// is asked whether the time is right. It is, unless rounding comes to half a
// nanosecond: a limit of weeks to full. A search downwards as well would find
// the very first nanosecond, and turn 100 ms into 99.999999 ms wherever the
// last digit of a float64 falls short.
func (a arith) wait(lim *rate.Limiter, now time.Time, tokens float64, n int64) time.Duration {
	if a.admits(tokens, n) {
		return 0
	}
	d := time.Duration(math.Round(a.nanos(float64(n) - tokens)))
	for step := time.Duration(1); d < maxWait && !a.admits(lim.TokensAt(now.Add(d)), n); step *= 2 {
		d += step
	}
	return d
}

// settled is wait for a limiter that has just admitted a call, and so counts
// from now: what it would answer is level plus the refill, to the bit, and need
// not be asked of it under its lock.
func (a arith) settled(level float64, n int64) time.Duration {
	if a.admits(level, n) {
		return 0
	}
	d := time.Duration(math.Round(a.nanos(float64(n) - level)))
	for step := time.Duration(1); d < maxWait; step *= 2 {
		back := float64(d.Seconds() * float64(a.perSecond)) // no fused sum: rate.Limiter has none
		if a.admits(level+back, n) {
			break
		}
		d += step
	}
	return d
}
