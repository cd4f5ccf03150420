package local

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
)

// arith has the constants of the buckets of one limit, and answers questions that
// rate.Limiter does not answer without taking tokens. The rejected alternative is
// Reserve and Cancel: a concurrent caller would see the bucket empty in between,
// and Cancel gives back only part if a later reservation exists.
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

// nanos returns the time in which the missing tokens come back, in ns. The division
// comes first, as in rate.Limiter: the results must be equal to the bit.
func (a arith) nanos(missing float64) float64 {
	return missing / float64(a.perSecond) * float64(time.Second)
}

// admits reports whether rate.Limiter admits n ≤ burst: the wait, cut to whole
// nanoseconds, is 0.
func (a arith) admits(tokens float64, n int64) bool {
	missing := float64(n) - tokens
	return missing <= 0 || a.nanos(missing) < 1
}

// remaining returns the largest n that would be admitted. It can be ⌊tokens⌋ + 1,
// because of that nanosecond: 0.9999999999 tokens admit a call of cost 1, which a
// caller that reads 0 would not make.
func (a arith) remaining(tokens float64) int64 {
	perNano := float64(a.perSecond) / float64(time.Second)
	n := min(int64(math.Floor(tokens+perNano))+1, a.burst)
	for n > 0 && !a.admits(tokens, n) { // at most three rounds
		n--
	}
	return max(n, 0)
}

// maxWait bounds the search in wait, because a loop under a lock needs a bound. It is
// 146 years. Validate bounds the time to full to 142 years, so the search ends
// earlier. (From a burst of debt the time is twice as long. In this case wait may
// return the rounded quotient without a search.)
const maxWait = hybridlimit.Never / 2

// wait returns the time from now until lim, which holds tokens now, admits n ≤ burst.
// The caller holds the lock that guards lim.
//
// The quotient here and the sums in AllowN round differently, so wait asks lim whether
// the time is right. It is right unless the rounding reaches half a nanosecond, as for
// a limit of weeks to full. A search downwards too would find the very first
// nanosecond. But it would turn 100 ms into 99.999999 ms wherever the last digit of a
// float64 is too small.
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

// settled is wait for a limiter that has just admitted a call, and so counts from now.
// Its TokensAt would be level plus the refill, to the bit. So settled computes the sum
// instead of taking the limiter's lock.
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
