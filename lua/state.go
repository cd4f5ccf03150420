package lua

import (
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// State is what Redis keeps of a key.
type State = algo.State

// DecodeState reads the text under which Redis keeps a token bucket: the header
// of bucket.lua says what is in it. It is for those who look on; a process
// hears of a state by the answers to its ops. Text that the library cannot have
// written is no state, for it as for Redis.
func DecodeState(text string) (State, bool) {
	rest, ok := strings.CutPrefix(text, "1b")
	fields := strings.Split(rest, " ")
	if !ok || len(fields) != 5 && len(fields) != 8 {
		return State{}, false
	}
	var v [8]int64
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || n < 0 && i != 1 && i != 2 || n > 1<<53 || n < -1<<53 || f[0] == '+' {
			return State{}, false
		}
		v[i] = n
	}
	if v[0] < 1 || v[3] < 1 {
		return State{}, false
	}
	s := State{Unit: v[0], Level: v[1], Last: v[3] + v[2], Born: v[3], Since: v[4], Out: [2]int64{v[6], v[7]}}
	if v[5] > 0 {
		s.Slot = s.Last + v[5]
	}
	return s, true
}
