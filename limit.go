package hybridlimit

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Limit is how much a key may consume: an algorithm, a rate and a burst.
// Limits are comparable. The zero Limit is not valid: a limit that nobody
// wrote down admits nobody. ParseLimit reads one from text, as do JSON and
// flags.
type Limit struct {
	// Algorithm says how units are counted. Zero: AlgTokenBucket.
	Algorithm Algorithm
	// Rate is units per Period; for windows, units per window. At least 1; 0
	// for AlgUnlimited and AlgBlocked, as are Period and Burst.
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

// PerDay is a token bucket of n units in 24 hours, burst n.
func PerDay(n int64) Limit { return TokenBucket(n, 24*time.Hour, 0) }

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

// FixedWindow is n units in each window. Windows begin at whole multiples of
// their length since the Unix epoch, in UTC: an hour on the hour, a day at
// midnight UTC, a week on a Thursday, because the epoch was one. Within an
// instant at a border 2·n units may be admitted.
func FixedWindow(n int64, window time.Duration) Limit {
	return Limit{AlgFixedWindow, n, window, 0}
}

// SlidingWindow is an estimated n units in any trailing window. The windows
// that it estimates from begin as those of FixedWindow do.
func SlidingWindow(n int64, window time.Duration) Limit {
	return Limit{AlgSlidingWindow, n, window, 0}
}

// SlidingLog is exactly n units in any trailing window.
func SlidingLog(n int64, window time.Duration) Limit {
	return Limit{AlgSlidingLog, n, window, 0}
}

// Unlimited admits everything and keeps no state. It equals
// Limit{Algorithm: AlgUnlimited}.
func Unlimited() Limit { return Limit{Algorithm: AlgUnlimited} }

// Blocked admits nothing and keeps no state. It equals
// Limit{Algorithm: AlgBlocked}, and unlike the zero Limit it is valid: somebody
// wrote it down.
func Blocked() Limit { return Limit{Algorithm: AlgBlocked} }

// BurstSize is the most units that can be admitted at once: Burst, or Rate
// where Burst is 0. It is math.MaxInt64 for AlgUnlimited and 0 for AlgBlocked.
func (l Limit) BurstSize() int64 {
	switch {
	case l.Algorithm == AlgUnlimited:
		return math.MaxInt64
	case l.Algorithm == AlgBlocked:
		return 0
	case l.Burst == 0:
		return l.Rate
	}
	return l.Burst
}

// TimeToFull is how long an empty bucket takes to fill, BurstSize·Period/Rate
// rounded up; for windows, the window; 0 where there is no state. It saturates
// at Never.
func (l Limit) TimeToFull() time.Duration {
	switch {
	case l.Algorithm.windowed():
		return l.Period
	case l.Algorithm.stateless():
		return 0
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

// String describes the limit for people: "100 per 1s, burst 200 (token
// bucket)", "unlimited". The text that ParseLimit reads back is MarshalText's.
func (l Limit) String() string {
	switch {
	case l.Algorithm.windowed():
		return fmt.Sprintf("%d per %v (%v)", l.Rate, l.Period, l.Algorithm)
	case l.Algorithm.stateless():
		return l.Algorithm.String()
	}
	return fmt.Sprintf("%d per %v, burst %d (%v)", l.Rate, l.Period, l.BurstSize(), l.Algorithm)
}
