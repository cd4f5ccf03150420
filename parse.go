package hybridlimit

import (
	"encoding"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// ParseLimit reads a limit from text, for configurations and flags:
//
//	100/s
//	100/s burst 200
//	5 per minute
//	10/1m30s burst 20 leaky queue
//	1_000_000/24h fixed window
//	10000/month in Europe/Berlin from day 15
//	100 concurrent
//	unlimited
//	blocked
//
// The parts are, in this order:
//
//   - the rate, a whole number,
//   - "/" or "per",
//   - the period: a unit (s, sec, second, m, min, minute, h, hour, d, day, ms,
//     µs, us), or one or more numbers with units (1m30s, 1.5h, 2 days). Any
//     duration of the standard library without a sign is one. A day is 24 hours.
//   - or a period of the calendar: week, month, year, or day with a zone. Optional, in either order: "in" with a time
//     zone, and "from" with the begin: "from Monday", "from day 15", "from 1 April". The algorithm is then the calendar
//     window. "from first use" behind a duration is another one.
//   - optional, in either order: "burst" with a number of at least 1, and the
//     algorithm (token bucket, leaky bucket, leaky queue, fixed window, sliding
//     window or sliding log). "gcra" is another word for token bucket.
//
// A limit of calls in flight is a number and "concurrent".
//
// The default burst is 0, which means Rate. The default algorithm is the token bucket. Case and plural do not matter,
// except in the name of a zone. Space may stand between the parts, and single underscores may group digits.
//
// A returned limit is valid. The error is an *InvalidError that quotes the text and names the expected part, or
// contains the violations of Validate. The returned limit is then the zero Limit, which admits nothing.
func ParseLimit(text string) (Limit, error) {
	r := reader{text: text, rest: lower(text)}
	l := r.limit()
	var bad violations
	if r.problem != "" {
		bad.add("Limit", abridged(text), "cannot be read: "+r.problem)
	} else if l.violations(&bad); len(bad) > 0 {
		bad = append(violations{{"Limit", abridged(text), "is not valid"}}, bad...)
	}
	if err := bad.err("hybridlimit"); err != nil {
		return Limit{}, err
	}
	return l, nil
}

// reader reads a limit from the left. Once problem is set, the results of its methods have no meaning.
type reader struct {
	text    string // the whole, in its case
	rest    string // the end of it that is not read, in lower case
	problem string
}

func (r *reader) limit() (l Limit) {
	for _, stateless := range []Limit{Unlimited(), Blocked()} {
		if r.phrase(stateless.Algorithm.String()) {
			if r.more() {
				r.expected("nothing after " + stateless.String())
			}
			return stateless
		}
	}
	l.Rate = r.count(`a rate such as 100/s, "unlimited" or "blocked"`)
	if r.problem == "" && r.phrase(AlgConcurrent.String()) {
		if r.more() {
			r.expected("nothing after " + AlgConcurrent.String())
		}
		return Concurrent(l.Rate)
	}
	if !r.slash() && !r.phrase("per") {
		r.expected(`"/", "per" or "concurrent" after a whole number`)
	}
	word, _ := cutWord(r.rest)
	if l.Calendar.Unit = r.calendarUnit(); l.Calendar.Unit == 0 {
		l.Period = r.period()
	}
	r.calendar(&l, units[word] == day)
	r.clauses(&l)
	if l.Algorithm == AlgCalendarWindow && l.Calendar == (Calendar{}) && units[word] == day { // "5/day calendar window"
		l.Calendar.Unit, l.Period = Day, 0
	}
	return l
}

// clauses reads the burst and the algorithm, each at most once.
func (r *reader) clauses(l *Limit) {
	var burst, algorithm bool
	for r.problem == "" && r.more() {
		switch {
		case !burst && r.phrase("burst"):
			burst = true
			if l.Burst = r.count("a burst of at least 1"); l.Burst == 0 {
				r.fail("expected a burst of at least 1, got 0") // 0 would mean Rate
			}
		case !algorithm && r.algorithm(&l.Algorithm):
			algorithm = true
		case burst && algorithm:
			r.expected("nothing after burst and algorithm")
		case burst:
			r.expected("an algorithm (" + statefulNames + ")")
		case algorithm:
			r.expected(`"burst"`)
		default:
			r.expected(`"burst" or an algorithm (` + statefulNames + ")")
		}
	}
}

// statefulNames lists the algorithms that a text can name behind a duration, for messages.
var statefulNames = strings.Join(algorithmNames[:AlgCalendarWindow], ", ")

func (r *reader) algorithm(to *Algorithm) bool {
	for a := range stateful {
		if r.phrase(a.String()) {
			*to = a
			return true
		}
	}
	if r.phrase("gcra") { // the same decisions, computed from a time instead of a level
		*to = AlgTokenBucket
		return true
	}
	return false
}

// count reads a whole number that fits an int64.
func (r *reader) count(what string) int64 {
	digits, rest, ok := cutDigits(r.skipSpace())
	if !ok {
		r.expected(what)
		return -1
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		r.expected(fmt.Sprintf("a number of at most %d", int64(math.MaxInt64)))
		return -1
	}
	r.rest = rest
	return n
}

// slash reads "/", if it comes next.
func (r *reader) slash() (ok bool) {
	r.rest, ok = strings.CutPrefix(r.skipSpace(), "/")
	return ok
}

// phrase reads words, if they come next and no other letter follows them directly.
func (r *reader) phrase(words string) bool {
	rest := r.rest
	for want := range strings.FieldsSeq(words) {
		var word string
		if word, rest = cutWord(rest); word != want {
			return false
		}
	}
	r.rest = rest
	return true
}

// more reports whether text other than space is left.
func (r *reader) more() bool { return r.skipSpace() != "" }

func (r *reader) skipSpace() string {
	r.rest = strings.TrimLeftFunc(r.rest, unicode.IsSpace)
	return r.rest
}

// expected notes the part that should have come next. The first problem stays: later ones are its consequences.
func (r *reader) expected(what string) {
	got := "nothing"
	if r.more() {
		next := r.rest
		if end := strings.IndexFunc(next, unicode.IsSpace); end >= 0 {
			next = next[:end]
		}
		got = strconv.Quote(abridged(next))
	}
	r.fail("expected " + what + ", got " + got)
}

func (r *reader) fail(problem string) {
	if r.problem == "" {
		r.problem = problem
	}
}

// cutWord splits off the letters at the start of s. It drops leading space.
func cutWord(s string) (word, rest string) {
	s = strings.TrimLeftFunc(s, unicode.IsSpace)
	rest = strings.TrimLeftFunc(s, unicode.IsLetter)
	return s[:len(s)-len(rest)], rest
}

// cutDigits splits off the ASCII digits at the start of s, without the single underscores between them. ok is false,
// and nothing is split off, if there are no digits or if an underscore stands elsewhere.
func cutDigits(s string) (digits, rest string, ok bool) {
	rest = strings.TrimLeft(s, "0123456789_")
	run := s[:len(s)-len(rest)]
	if run == "" || run[0] == '_' || run[len(run)-1] == '_' || strings.Contains(run, "__") {
		return "", s, false
	}
	return strings.ReplaceAll(run, "_", ""), rest, true
}

// lower folds ASCII only: Unicode has further letters that fold to k and s.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// abridged bounds the length of a text that an error quotes.
func abridged(s string) string {
	const most = 80 // bytes, more than a long limit needs
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

var (
	_ encoding.TextMarshaler   = Limit{}
	_ encoding.TextUnmarshaler = (*Limit)(nil)
)

// MarshalText returns the limit as text that ParseLimit reads back: "100/s burst 200", "5/min sliding window",
// "5/week from Monday", "100 concurrent", "unlimited". It omits defaults. JSON, YAML and flag.TextVar use it.
//
// An invalid limit has no text: the error is that of Validate. An optional field
// should be a pointer or, in JSON, have the option omitzero.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if l.Algorithm.stateless() {
		return []byte(l.Algorithm.String()), nil
	}
	if l.Algorithm == AlgConcurrent {
		return []byte(l.String()), nil
	}
	b := strconv.AppendInt(nil, l.Rate, 10)
	b = append(b, '/')
	if l.Algorithm == AlgCalendarWindow {
		return append(b, l.calendarText()...), nil
	}
	b = append(b, periodText(l.Period)...)
	if l.Burst != 0 {
		b = append(b, " burst "...)
		b = strconv.AppendInt(b, l.Burst, 10)
	}
	if l.Algorithm != AlgTokenBucket {
		b = append(b, ' ')
		b = append(b, l.Algorithm.String()...)
	}
	return b, nil
}

// UnmarshalText reads a limit as ParseLimit does, with the same errors. On an error the limit keeps its value.
func (l *Limit) UnmarshalText(text []byte) error {
	read, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = read
	return nil
}
