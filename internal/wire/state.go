package wire

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// State is the state of a key in Redis. A sliding log has none.
type State = algo.State

// DecodeState reads the text of a bucket, a queue or a window in Redis. The headers of bucket.lua and window.lua
// specify it. It is for inspection only: limiters learn of a state from the answers to their ops. It returns false for
// a text that the scripts cannot have written. The scripts also treat such a text as no state.
func DecodeState(text string) (State, bool) {
	if len(text) < 2 || text[0] != '1' {
		return State{}, false
	}
	k, ok := kindOf(text[1])
	if !ok {
		return State{}, false
	}
	signed, fixed := k == algo.KindBucket || k == algo.KindQueue, 5
	if !signed {
		fixed = 6
	}
	words := strings.Split(text[2:], " ")
	if len(words) < fixed {
		return State{}, false
	}
	v := make([]int64, fixed)
	for i, f := range words[:fixed] {
		n, ok := hexInt(f, signed && (i == 1 || i == 2))
		if !ok {
			return State{}, false
		}
		v[i] = n
	}
	f, ok := readFields(words[fixed:])
	if !ok {
		return State{}, false
	}
	if signed {
		return bucketState(k, v, f)
	}
	return windowState(k, v, f)
}

// kindOf returns the kind of a state by its letter.
func kindOf(letter byte) (algo.Kind, bool) {
	for _, k := range []algo.Kind{algo.KindBucket, algo.KindQueue, algo.KindFixed, algo.KindSliding, algo.KindCalendar} {
		if k.Letter() == letter {
			return k, true
		}
	}
	return 0, false
}

// maxTail is the length of the longest tail of fields of a state, in bytes.
const maxTail = 256

// fields is the tail of a state: its numbers by letter, and the text of all fields.
type fields struct {
	known map[byte]int64
	text  []string
}

// readFields reads the fields behind the fixed numbers of a state. A number that is too large becomes 2⁵³+1, which the
// checks of the known letters reject. Under an unknown letter it is permitted.
func readFields(words []string) (fields, bool) {
	f := fields{known: map[byte]int64{}, text: words}
	length := 0
	for _, w := range words {
		if length += 1 + len(w); length > maxTail || !field.MatchString(w) {
			return f, false
		}
		n, ok := hexInt(w[1:], true)
		if !ok {
			n = 1<<53 + 1
		}
		f.known[w[0]] = n
	}
	return f, true
}

var field = regexp.MustCompile(`^[a-z]-?[0-9a-fA-F]+$`)

// more returns the text of the fields with other letters than letters.
func (f fields) more(letters string) string {
	var text strings.Builder
	for _, w := range f.text {
		if !strings.Contains(letters, w[:1]) {
			text.WriteString(" " + w)
		}
	}
	return text.String()
}

// hexInt reads a hexadecimal integer, as %x writes it, from -2⁵³ to 2⁵³. A minus is permitted only if signed is true.
func hexInt(f string, signed bool) (int64, bool) {
	n, err := strconv.ParseInt(f, 16, 64)
	return n, err == nil && n <= 1<<53 && n >= -1<<53 && f[0] != '+' && (signed || f[0] != '-')
}

func within(least int64, v ...int64) bool {
	for _, n := range v {
		if n < least || n > 1<<53 {
			return false
		}
	}
	return true
}

func bucketState(k algo.Kind, v []int64, f fields) (State, bool) {
	refill, given := f.known['r']
	if !given {
		refill = 1
	}
	s := State{
		Kind: k, Unit: v[0], Refill: refill, Level: v[1], Last: v[3] + v[2], Born: v[3], Since: v[4],
		Out: [2]int64{f.known['o'], f.known['p']}, Span: f.known['g'], More: f.more("rtopghkz"),
	}
	wait, ahead, keep := f.known['t'], f.known['h'], f.known['k']
	if !within(1, s.Unit, s.Born, refill) || !within(0, s.Since, wait, ahead, keep, s.Out[0], s.Out[1], s.Span) || s.Span > 3 || refill > 1<<51 {
		return State{}, false
	}
	if reset, marked := f.known['z']; marked {
		if s.Reset = s.Born + reset; !within(1, s.Reset) {
			return State{}, false
		}
	}
	if wait > 0 {
		s.Slot = min(s.Last+wait, 1<<53)
	}
	if ahead > 0 {
		s.Ahead = min(s.Last+ahead, 1<<53)
	}
	if keep > 0 {
		s.Keep = min(s.Last+keep, 1<<53)
	}
	return s, true
}

func windowState(k algo.Kind, v []int64, f fields) (State, bool) {
	s := State{
		Kind: k, Period: v[0], Win: v[1], Cur: v[2], Prev: v[3], Born: v[4], Since: v[5], Late: f.known['l'], Next: f.known['n'],
		Debt: f.known['d'], Carry: f.known['c'], More: f.more("cdlnz"),
	}
	step := s.Period
	if k == algo.KindCalendar { // in s, so that a number is one too
		step = 1_000_000
		s.Period *= step
	}
	if !within(1, s.Period, s.Born) || !within(0, v...) || !within(0, s.Debt, s.Carry) || !within(-1<<53, s.Late) ||
		s.Next < 0 || s.Period > 1<<52 || s.Win > 1<<53/step {
		return State{}, false
	}
	if reset, marked := f.known['z']; marked {
		if s.Reset = s.Win*step + reset; !within(0, reset, s.Reset) {
			return State{}, false
		}
	}
	return s, true
}
