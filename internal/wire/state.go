package wire

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// State is what Redis keeps of a key, but for a sliding log.
type State = algo.State

// DecodeState reads the text under which Redis keeps a bucket, a queue or a
// window: the headers of bucket.lua and window.lua say what is in it. It is for
// those who look on; a process hears of a state by the answers to its ops. Text
// that the library cannot have written is no state, for it as for Redis.
func DecodeState(text string) (State, bool) {
	if len(text) < 2 || text[0] != '1' {
		return State{}, false
	}
	kind := strings.IndexByte("bqfs", text[1])
	if kind < 0 {
		return State{}, false
	}
	k := algo.Kind(kind)
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

// maxTail is the longest tail of fields that a state may have, in bytes.
const maxTail = 256

// fields is the tail of a state: numbers by their letters, and the text of all
// of them.
type fields struct {
	known map[byte]int64
	text  []string
}

// readFields reads what stands behind the numbers that each state has. Numbers
// that are too large are told by the letters that are known, and by no other.
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

// more is the fields that have none of the letters.
func (f fields) more(letters string) string {
	var text strings.Builder
	for _, w := range f.text {
		if !strings.Contains(letters, w[:1]) {
			text.WriteString(" " + w)
		}
	}
	return text.String()
}

// hexInt reads what %x can have written, after a minus where one may stand, up
// to 2⁵³.
func hexInt(f string, signed bool) (int64, bool) {
	n, err := strconv.ParseInt(f, 16, 64)
	return n, err == nil && n <= 1<<53 && n >= -1<<53 && f[0] != '+' && (signed || f[0] != '-')
}

// within reports whether all are from least to 2⁵³.
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
		Out: [2]int64{f.known['o'], f.known['p']}, More: f.more("rtopz"),
	}
	wait := f.known['t']
	if !within(1, s.Unit, s.Born, refill) || !within(0, s.Since, wait, s.Out[0], s.Out[1]) || refill > 1<<51 {
		return State{}, false
	}
	if reset, marked := f.known['z']; marked {
		if s.Reset = s.Born + reset; !within(1, s.Reset) {
			return State{}, false
		}
	}
	if wait > 0 {
		s.Slot = s.Last + wait
	}
	return s, true
}

func windowState(k algo.Kind, v []int64, f fields) (State, bool) {
	s := State{Kind: k, Period: v[0], Win: v[1], Cur: v[2], Prev: v[3], Born: v[4], Since: v[5], Late: f.known['l'], More: f.more("lz")}
	if !within(1, s.Period, s.Born) || !within(0, v...) || s.Period > 1<<52 || s.Win > 1<<53/s.Period || s.Late > 1<<53 || s.Late < -1<<53 {
		return State{}, false
	}
	if reset, marked := f.known['z']; marked {
		if s.Reset = s.Win*s.Period + reset; !within(0, reset, s.Reset) {
			return State{}, false
		}
	}
	return s, true
}
