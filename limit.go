package hybridlimit

import (
	"fmt"
	"math/bits"
	"time"
)

// Limit is how much a key may consume: an algorithm, a rate and a burst.
// Limits are comparable. The zero Limit is not valid: a limit that nobody
// wrote down admits nobody.
type Limit struct {
	// Algorithm says how units are counted. Zero: AlgTokenBucket.
	Algorithm Algorithm
	// Rate is units per Period; for windows, units per window. At least 1.
	Rate int64
	// Period is the time in which Rate units come back; for windows, the
	// window. At least 1 µs, in whole µs.
	Period time.Duration
	// Burst is the size of the bucket or the length of the queue in units:
	// the most that can be admitted at once. Zero: Rate. Windows have no
	// burst of their own and take 0 or Rate.
	Burst int64
}

// PerSecond is a token bucket of n units a second, burst n.
func PerSecond(n int64) Limit { return TokenBucket(n, time.Second, 0) }

// PerMinute is a token bucket of n units a minute, burst n.
func PerMinute(n int64) Limit { return TokenBucket(n, time.Minute, 0) }

// PerHour is a token bucket of n units an hour, burst n.
func PerHour(n int64) Limit { return TokenBucket(n, time.Hour, 0) }

// TokenBucket is a bucket of burst units that refills at rate per period. A
// burst of 0 means rate.
func TokenBucket(rate int64, per time.Duration, burst int64) Limit {
	return Limit{AlgTokenBucket, rate, per, burst}
}

// LeakyBucket is a meter of size burst that leaks at rate per period. A burst
// of 0 means rate.
func LeakyBucket(rate int64, per time.Duration, burst int64) Limit {
	return Limit{AlgLeakyBucket, rate, per, burst}
}

// LeakyQueue is a queue of length burst that is served at rate per period. A
// burst of 0 means rate.
func LeakyQueue(rate int64, per time.Duration, burst int64) Limit {
	return Limit{AlgLeakyQueue, rate, per, burst}
}

// FixedWindow is n units in each window.
func FixedWindow(n int64, window time.Duration) Limit {
	return Limit{AlgFixedWindow, n, window, 0}
}

// SlidingWindow is an estimated n units in any trailing window.
func SlidingWindow(n int64, window time.Duration) Limit {
	return Limit{AlgSlidingWindow, n, window, 0}
}

// SlidingLog is exactly n units in any trailing window.
func SlidingLog(n int64, window time.Duration) Limit {
	return Limit{AlgSlidingLog, n, window, 0}
}

// BurstSize is the most units that can be admitted at once: Burst, or Rate
// where Burst is 0.
func (l Limit) BurstSize() int64 {
	if l.Burst == 0 {
		return l.Rate
	}
	return l.Burst
}

// TimeToFull is how long an empty bucket takes to fill, BurstSize·Period/Rate
// rounded up; for windows, the window. It saturates at Never.
func (l Limit) TimeToFull() time.Duration {
	if l.Algorithm.windowed() {
		return l.Period
	}
	hi, lo := bits.Mul64(uint64(l.BurstSize()), uint64(l.Period))
	if l.Rate < 1 || hi >= uint64(l.Rate) {
		return Never
	}
	q, r := bits.Div64(hi, lo, uint64(l.Rate))
	if q >= uint64(Never) {
		return Never
	}
	if r > 0 {
		q++
	}
	return time.Duration(q)
}

// String describes the limit: "100 per 1s, burst 200 (token bucket)".
func (l Limit) String() string {
	if l.Algorithm.windowed() {
		return fmt.Sprintf("%d per %v (%v)", l.Rate, l.Period, l.Algorithm)
	}
	return fmt.Sprintf("%d per %v, burst %d (%v)", l.Rate, l.Period, l.BurstSize(), l.Algorithm)
}

// exactInt is the largest magnitude that a float64, and so a Lua number,
// counts to without gaps.
const exactInt = 1 << 53

// Validate reports everything that is wrong with the limit as one
// *InvalidError, or nil.
//
// Besides the obvious it refuses limits whose arithmetic would not be exact.
// Buckets count in sub-units: with g = gcd(Rate, Period in µs), one unit is
// Period/g sub-units, of which Rate/g come back each µs. A bucket in debt
// spans two bursts, and 2·Burst·Period/g + Rate/g must not exceed 2⁵³. One a
// day and ten million a second are far inside; a large prime rate over a long
// period is not, and a rounder rate is. Windows count in units: a Rate of 2⁵¹
// and a Period of 35 years are their bounds.
func (l Limit) Validate() error {
	var bad Violations
	l.violations(&bad)
	return bad.Err("hybridlimit")
}

func (l Limit) violations(bad *Violations) {
	if l.Algorithm >= algorithms {
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
	if len(*bad) > 0 {
		return
	}
	period := int64(l.Period / time.Microsecond)
	if l.Algorithm.windowed() {
		if l.Rate > exactInt/4 {
			bad.Add("Limit.Rate", l.Rate, "must be at most 2⁵¹")
		}
		if period > exactInt/8 {
			bad.Add("Limit.Period", l.Period, "must be at most 2⁵⁰ µs (35 years)")
		}
		return
	}
	g := gcd(l.Rate, period)
	unit, refill := period/g, l.Rate/g
	if hi, lo := bits.Mul64(uint64(l.BurstSize()), uint64(unit)); hi != 0 || lo > (exactInt-uint64(min(refill, exactInt)))/2 {
		bad.Add("Limit", l.String(), fmt.Sprintf(
			"needs counts above 2⁵³ (one unit is %d sub-units): use a smaller burst, or a rate and period with a larger common divisor", unit))
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
