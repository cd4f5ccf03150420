package hybridlimit

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// units are the words for periods, in lower case.
var units = map[string]time.Duration{
	"ns": time.Nanosecond,
	"us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond, // U+00B5 and U+03BC
	"ms": time.Millisecond,
	"s":  time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day,
}

// period reads a unit, or numbers with units, and returns their sum.
func (r *reader) period() time.Duration {
	if word, rest := cutWord(r.rest); word != "" {
		unit, ok := units[word]
		if !ok {
			r.expected("a unit (s, min, h, d, week, month, year, ms, µs) or a duration such as 1m30s")
		} else {
			r.rest = rest
		}
		return unit
	}
	var total time.Duration
	for first := true; r.problem == "" && (first || r.numberNext()); first = false {
		d := r.term()
		if d > math.MaxInt64-total {
			r.tooLong()
		}
		total += d
	}
	return total
}

// numberNext reports whether the period continues: "burst" and the algorithms do not begin with a digit or a point.
func (r *reader) numberNext() bool {
	s := r.skipSpace()
	return s != "" && (s[0] == '.' || '0' <= s[0] && s[0] <= '9')
}

// term reads one number with its unit: "30 seconds", "1.5h".
func (r *reader) term() time.Duration {
	const what = "a duration such as 1m30s"
	s := r.skipSpace()
	whole, rest, ok := cutDigits(s)
	var fraction string
	if after, point := strings.CutPrefix(rest, "."); point {
		var fractionOK bool
		fraction, rest, fractionOK = cutDigits(after)
		ok = ok || fractionOK
	}
	if !ok {
		r.expected(what)
		return 0
	}
	number := s[:len(s)-len(rest)]
	word, after := cutWord(rest)
	unit, ok := units[word]
	if !ok {
		r.rest = rest
		r.expected(fmt.Sprintf("a unit (s, min, h, d, ms, µs) after %s", abridged(number)))
		return 0
	}
	parts, exact := fractionOf(fraction, unit)
	if !exact {
		r.expected("a whole number of ns")
		return 0
	}
	n, err := strconv.ParseInt("0"+whole, 10, 64)
	if err != nil || n > int64((math.MaxInt64-parts)/unit) {
		r.tooLong()
		return 0
	}
	r.rest = after
	return time.Duration(n)*unit + parts
}

func (r *reader) tooLong() {
	r.fail(fmt.Sprintf("expected a period of at most %v", time.Duration(math.MaxInt64)))
}

// fractionOf returns 0.digits of a unit, and whether it is a whole number of ns.
// time.ParseDuration would round instead.
func fractionOf(digits string, unit time.Duration) (d time.Duration, exact bool) {
	digits = strings.TrimRight(digits, "0")
	if len(digits) > 18 { // below 10¹⁸ parts of a day there is no whole ns
		return 0, false
	}
	n, _ := strconv.ParseUint("0"+digits, 10, 64)
	scale := uint64(1)
	for range digits {
		scale *= 10
	}
	hi, lo := bits.Mul64(n, uint64(unit))
	q, rem := bits.Div64(hi, lo, scale) // n < scale, so the quotient is below unit
	return time.Duration(q), rem == 0
}

// periodText returns the shortest text that period reads back as d: "s", "d", "5m", "1m30s".
func periodText(d time.Duration) string {
	switch d {
	case time.Second:
		return "s"
	case time.Minute:
		return "min"
	case time.Hour:
		return "h"
	case day:
		return "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
