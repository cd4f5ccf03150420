package hybridlimit

import (
	"fmt"
	"math/bits"
	"time"
)

// exactInt is 2⁵³: up to it, a float64, and so a Lua number, represents every integer.
const exactInt = 1 << 53

// Validate returns nil for a valid limit, else an *InvalidError with every violation.
//
// Validate also refuses limits whose arithmetic would not be exact in a float64,
// which represents every integer up to 2⁵³:
//
//   - Buckets and the queue count in sub-units. With g = gcd(Rate, Period in
//     µs), one unit is Period/g sub-units, and Rate/g sub-units come back each
//     µs. A bucket in debt spans two bursts, so 2·Burst·Period/g + Rate/g must
//     not exceed 2⁵³. Limits of one a day and of ten million a second are far
//     within the bound. A large prime rate over a long period is not: choose a
//     rounder rate.
//   - Windows and the log count units. Rate must be at most 2⁵¹ and Period at
//     most 2⁵⁰ µs (35 years). With f the elapsed part of the window, the sliding
//     window estimates cur + prev·(1 − f). The estimate is exact in f too while
//     Rate·Period is at most 2⁵¹ (26 062 a day, a million in 37 minutes). Beyond
//     that, prev decreases in steps longer than 1 µs, up to one step late.
//
// A calendar window has a Calendar with a unit and a zone that this machine knows. Its Period and Burst must be 0.
//
// AlgConcurrent counts calls: Rate must be at most 2⁵¹, and Period and Burst must be 0. AlgUnlimited and AlgBlocked
// have no arithmetic, and take no Rate, Period or Burst.
func (l Limit) Validate() error {
	var bad violations
	l.violations(&bad)
	return bad.err("hybridlimit")
}

func (l Limit) violations(bad *violations) {
	switch {
	case l.Algorithm.stateless():
		if l.Rate != 0 {
			bad.add("Limit.Rate", l.Rate, l.mustBeZero())
		}
		l.rateOnlyViolations(bad)
		return
	case l.Algorithm == AlgConcurrent:
		if l.Rate < 1 {
			bad.add("Limit.Rate", l.Rate, "must be at least 1")
		}
		if l.Rate > exactInt/4 {
			bad.add("Limit.Rate", l.Rate, rateTooLarge)
		}
		l.rateOnlyViolations(bad)
		return
	case l.Algorithm >= algorithms:
		bad.add("Limit.Algorithm", l.Algorithm, "is not an algorithm")
	}
	if l.Rate < 1 {
		bad.add("Limit.Rate", l.Rate, "must be at least 1")
	}
	if l.Algorithm == AlgCalendarWindow {
		l.calendarViolations(bad)
		return
	}
	if l.Calendar != (Calendar{}) {
		bad.add("Limit.Calendar", fmt.Sprintf("%+v", l.Calendar), "must be zero: only a calendar window has one")
	}
	switch {
	case l.Period < time.Microsecond:
		bad.add("Limit.Period", l.Period, "must be at least 1µs")
	case l.Period%time.Microsecond != 0:
		bad.add("Limit.Period", l.Period, "must be a whole number of µs")
	}
	if l.Burst < 0 {
		bad.add("Limit.Burst", l.Burst, "must not be negative")
	}
	if l.Algorithm.windowed() && l.Burst != 0 && l.Burst != l.Rate {
		bad.add("Limit.Burst", l.Burst, "must be 0 or Rate: a window has no burst of its own")
	}
	switch {
	case len(*bad) > 0:
	case l.Algorithm.windowed():
		l.countViolations(bad)
	default:
		l.bucketViolations(bad)
	}
}

// calendarViolations are those of a calendar window, except of a Rate below 1.
func (l Limit) calendarViolations(bad *violations) {
	if l.Rate > exactInt/4 {
		bad.add("Limit.Rate", l.Rate, rateTooLarge)
	}
	switch {
	case l.Calendar.Unit != FromUse:
		if l.Period != 0 {
			bad.add("Limit.Period", l.Period, "must be 0: the calendar has the period")
		}
	case l.Period < time.Second, l.Period%time.Second != 0:
		bad.add("Limit.Period", l.Period, "must be whole seconds, at least 1s")
	case l.Period/time.Microsecond > exactInt/8:
		bad.add("Limit.Period", l.Period, periodTooLong)
	}
	if l.Burst != 0 {
		bad.add("Limit.Burst", l.Burst, "must be 0: a window has no burst of its own")
	}
	l.Calendar.violations(bad)
}

// rateOnlyViolations are those of a limit without a period, a burst and a calendar.
func (l Limit) rateOnlyViolations(bad *violations) {
	if l.Calendar != (Calendar{}) {
		bad.add("Limit.Calendar", fmt.Sprintf("%+v", l.Calendar), l.mustBeZero())
	}
	if l.Period != 0 {
		bad.add("Limit.Period", l.Period, l.mustBeZero())
	}
	if l.Burst != 0 {
		bad.add("Limit.Burst", l.Burst, l.mustBeZero())
	}
}

func (l Limit) mustBeZero() string {
	return fmt.Sprintf("must be 0 in a limit that is %v", l.Algorithm)
}

// bucketViolations bounds the sub-units of a bucket in debt.
func (l Limit) bucketViolations(bad *violations) {
	period := int64(l.Period / time.Microsecond)
	g := gcd(l.Rate, period)
	unit, refill := period/g, l.Rate/g
	if hi, lo := bits.Mul64(uint64(l.BurstSize()), uint64(unit)); hi != 0 || lo > (exactInt-uint64(min(refill, exactInt)))/2 {
		bad.add("Limit", l.String(), fmt.Sprintf(
			"needs counts above 2⁵³ (one unit is %d sub-units): use a smaller burst, or a rate and period with a larger common divisor", unit))
	}
}

// countViolations bounds units and times, so that two windows of twice the Rate
// are counted exactly, and the end of a window that begins today is exact.
func (l Limit) countViolations(bad *violations) {
	if l.Rate > exactInt/4 {
		bad.add("Limit.Rate", l.Rate, rateTooLarge)
	}
	if l.Period/time.Microsecond > exactInt/8 {
		bad.add("Limit.Period", l.Period, periodTooLong)
	}
}

const periodTooLong = "must be at most 2⁵⁰ µs (35 years)"

const rateTooLarge = "must be at most 2⁵¹ (2251799813685248)"

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
