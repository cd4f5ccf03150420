package local

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// arith has the constants of the buckets of one limit.
type arith struct {
	burst     int64
	perSecond float64 // units that come back
	perUnit   float64 // ns until a unit comes back
	slack     float64 // see admits
	short     bool    // see tokens.wait
}

func newArith(l hybridlimit.Limit) arith {
	a := arith{burst: l.BurstSize(), perSecond: float64(l.Rate) / l.Period.Seconds()}
	a.perUnit = float64(time.Second) / a.perSecond
	a.slack = a.perSecond / float64(time.Second)
	for a.nanos(a.slack) >= 1 {
		a.slack = math.Nextafter(a.slack, 0)
	}
	a.short = float64(a.burst)*a.perUnit < 1<<45
	return a
}

// nanos returns the time in which the missing units come back, in ns, rounded as by rate.Limiter. perUnit would round
// otherwise.
func (a *arith) nanos(missing float64) float64 {
	return missing / a.perSecond * float64(time.Second)
}

// admits reports whether n ≤ burst units are admitted at a level. It forgives less than the refill of one nanosecond,
// as rate.Limiter does, which cuts the wait to whole nanoseconds. slack is the largest number of missing units with a
// wait below one.
func (a *arith) admits(level float64, n int64) bool { return float64(n)-level <= a.slack }

// refilled returns the level after some time, at most the burst. It computes as rate.Limiter does, without a fused sum.
func (a *arith) refilled(level float64, elapsed time.Duration) float64 {
	seconds := float64(elapsed) / float64(time.Second)
	if elapsed >= time.Second {
		seconds = elapsed.Seconds()
	}
	return min(level+float64(seconds*a.perSecond), float64(a.burst))
}

// remaining returns the largest n that would be admitted. It can be ⌊level⌋ + 1, because of that nanosecond:
// 0.9999999999 tokens admit a call of cost 1, which a caller that reads 0 would not make.
func (a *arith) remaining(level float64) int64 {
	n := math.Floor(level+a.slack) + 1
	for n-level > a.slack { // at most three rounds
		n--
	}
	return max(0, min(int64(n), a.burst))
}

// maxWait bounds the search in tokens.wait, because a loop under a lock needs a bound. It is 146 years. Validate bounds
// the time to full to 142 years, so the search ends earlier. (From a burst of debt the time is twice as long. In this
// case wait may return the rounded product without a search.)
const maxWait = hybridlimit.Never / 2
