package hybridlimit

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Limit is the amount that a key may consume: an algorithm, a rate and a burst. Limits are comparable. The zero Limit
// is not valid, so that a limit that was never set admits nothing. ParseLimit reads a limit from text; JSON and flags
// use the same text.
type Limit struct {
	// Algorithm is the way in which units are counted. Zero: AlgTokenBucket.
	Algorithm Algorithm
	// Rate is the number of units per Period. At least 1. For AlgUnlimited and AlgBlocked, Rate, Period and Burst must
	// be 0. For AlgConcurrent, Rate is the number of calls that may run at once, and Period and Burst must be 0.
	Rate int64
	// Period is the time in which Rate units come back. For windows it is the
	// length of the window. At least 1 µs, in whole µs.
	Period time.Duration
	// Burst is the size of the bucket or the length of the queue, in units: the most that can be admitted at once.
	// Zero: Rate. For windows it must be 0 or Rate.
	Burst int64
	// Calendar says when the periods of AlgCalendarWindow begin. Period and Burst must then be 0. Only FromUse has a
	// Period, in whole seconds. For every other algorithm Calendar must be zero.
	Calendar Calendar
}

// PerSecond returns a token bucket of n units a second, burst n.
func PerSecond(n int64) Limit { return TokenBucket(n, time.Second, 0) }

// PerMinute returns a token bucket of n units a minute, burst n.
func PerMinute(n int64) Limit { return TokenBucket(n, time.Minute, 0) }

// PerHour returns a token bucket of n units an hour, burst n.
func PerHour(n int64) Limit { return TokenBucket(n, time.Hour, 0) }

// PerDay returns a token bucket of n units in 24 hours, burst n.
func PerDay(n int64) Limit { return TokenBucket(n, 24*time.Hour, 0) }

// TokenBucket returns a bucket of burst units that refills at rate per period. A burst of 0 means rate.
func TokenBucket(rate int64, per time.Duration, burst int64) Limit {
	return Limit{Algorithm: AlgTokenBucket, Rate: rate, Period: per, Burst: burst}
}

// LeakyBucket returns a meter of size burst that leaks at rate per period. A burst of 0 means rate.
func LeakyBucket(rate int64, per time.Duration, burst int64) Limit {
	return Limit{Algorithm: AlgLeakyBucket, Rate: rate, Period: per, Burst: burst}
}

// LeakyQueue returns a queue of length burst, served at rate per period. A burst of 0 means rate.
func LeakyQueue(rate int64, per time.Duration, burst int64) Limit {
	return Limit{Algorithm: AlgLeakyQueue, Rate: rate, Period: per, Burst: burst}
}

// FixedWindow returns a limit of n units in each window. Windows begin at whole multiples of their length since the
// Unix epoch, in UTC: an hour on the hour, a day at midnight UTC, a week on a Thursday, because the epoch was one.
// Around the border of two windows, 2·n units may be admitted within an instant.
func FixedWindow(n int64, window time.Duration) Limit {
	return Limit{Algorithm: AlgFixedWindow, Rate: n, Period: window}
}

// SlidingWindow returns a limit of an estimated n units in any trailing window.
// The estimate uses windows that begin at the same times as those of FixedWindow.
func SlidingWindow(n int64, window time.Duration) Limit {
	return Limit{Algorithm: AlgSlidingWindow, Rate: n, Period: window}
}

// SlidingLog returns a limit of exactly n units in any trailing window.
func SlidingLog(n int64, window time.Duration) Limit {
	return Limit{Algorithm: AlgSlidingLog, Rate: n, Period: window}
}

// Unlimited returns the limit that admits everything and keeps no state: Limit{Algorithm: AlgUnlimited}.
func Unlimited() Limit { return Limit{Algorithm: AlgUnlimited} }

// Blocked returns the limit that admits nothing and keeps no state:
// Limit{Algorithm: AlgBlocked}. It is valid, unlike the zero Limit.
func Blocked() Limit { return Limit{Algorithm: AlgBlocked} }

// Concurrent returns a limit of n calls in flight: Limit{Algorithm: AlgConcurrent, Rate: n}. It is for limiters of
// permits, such as that of local.NewConcurrency.
func Concurrent(n int64) Limit { return Limit{Algorithm: AlgConcurrent, Rate: n} }

// BurstSize returns the most units that can be admitted at once: Burst, or Rate
// if Burst is 0. It returns math.MaxInt64 for AlgUnlimited and 0 for AlgBlocked.
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

// TimeToFull returns the time in which an empty bucket becomes full: BurstSize·Period/Rate, rounded up, at most Never.
// For windows it returns the window, for AlgCalendarWindow about the longest period (a month: 31 days), and for
// AlgConcurrent and a limit without state 0.
func (l Limit) TimeToFull() time.Duration {
	switch {
	case l.Algorithm == AlgCalendarWindow && l.Calendar.Unit != FromUse:
		return l.Calendar.longest()
	case l.Algorithm.windowed():
		return l.Period
	case l.Algorithm >= stateful:
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

// String returns the limit in words: "100 per 1s, burst 200 (token bucket)",
// "10000 per month in Europe/Berlin (calendar window)", "100 concurrent", "unlimited". ParseLimit does not read it: use MarshalText for that.
func (l Limit) String() string {
	switch {
	case l.Algorithm == AlgCalendarWindow:
		return fmt.Sprintf("%d per %v (%v)", l.Rate, l.calendarText(), l.Algorithm)
	case l.Algorithm.windowed():
		return fmt.Sprintf("%d per %v (%v)", l.Rate, l.Period, l.Algorithm)
	case l.Algorithm.stateless():
		return l.Algorithm.String()
	case l.Algorithm == AlgConcurrent:
		return fmt.Sprintf("%d %v", l.Rate, l.Algorithm)
	}
	return fmt.Sprintf("%d per %v, burst %d (%v)", l.Rate, l.Period, l.BurstSize(), l.Algorithm)
}

// Algorithm is the way in which units are counted and come back.
type Algorithm uint8

// The algorithms. The zero value is the token bucket.
const (
	// AlgTokenBucket refills Rate units per Period up to Burst and admits while units are left (the generic cell rate
	// algorithm of ITU-T I.371 in its token form).
	AlgTokenBucket Algorithm = iota
	// AlgLeakyBucket is the leaky bucket as a meter, which polices. It admits
	// the same calls as a token bucket of equal rate and burst.
	AlgLeakyBucket
	// AlgLeakyQueue is the leaky bucket as a queue, which shapes: Result.Delay is the time to wait before forwarding.
	AlgLeakyQueue
	// AlgFixedWindow counts in windows aligned to the clock of Redis, or in local to the clock of the process.
	AlgFixedWindow
	// AlgSlidingWindow estimates a trailing window from two counters. A true trailing window may hold up to 2·Rate - 1.
	AlgSlidingWindow
	// AlgSlidingLog keeps the time of every admission for one Period. Its count is exact.
	AlgSlidingLog
	// AlgCalendarWindow counts in the periods of a Calendar: days, weeks, months or years in a time zone. The process
	// computes when a period begins and ends; the clock of Redis decides whether it has.
	AlgCalendarWindow

	// AlgUnlimited admits everything. It has no rate, period or burst, and keeps no state.
	AlgUnlimited
	// AlgBlocked admits nothing. It has no rate, period or burst, and keeps no state.
	AlgBlocked

	// AlgConcurrent counts the calls that run: at most Rate at once. It has no
	// period and no burst. Its limiters are Acquirers: no rate limiter accepts it.
	AlgConcurrent

	algorithms                // the number of algorithms
	stateful   = AlgUnlimited // only algorithms below it have a period
)

var algorithmNames = [algorithms]string{
	"token bucket", "leaky bucket", "leaky queue",
	"fixed window", "sliding window", "sliding log", "calendar window",
	"unlimited", "blocked", "concurrent",
}

// String returns the algorithm's name, for example "token bucket".
func (a Algorithm) String() string {
	if a < algorithms {
		return algorithmNames[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// windowed reports whether Rate is a count per window. If not, it is a refill.
func (a Algorithm) windowed() bool {
	return a == AlgFixedWindow || a == AlgSlidingWindow || a == AlgSlidingLog || a == AlgCalendarWindow
}

// stateless reports whether the decision is always the same.
func (a Algorithm) stateless() bool { return a == AlgUnlimited || a == AlgBlocked }
