package lua

import (
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
	bucket := algo.Kind(kind) == algo.KindBucket || algo.Kind(kind) == algo.KindQueue
	body, mark, marked := strings.Cut(text[2:], "@")
	var v []int64
	for i, f := range strings.Split(body, " ") {
		n, ok := hexInt(f, bucket && (i == 1 || i == 2))
		if !ok {
			return State{}, false
		}
		v = append(v, n)
	}
	reset, ok := int64(0), true
	if marked {
		reset, ok = hexInt(mark, bucket)
	}
	if !ok {
		return State{}, false
	}
	if bucket {
		return bucketState(algo.Kind(kind), v, reset, marked)
	}
	return windowState(algo.Kind(kind), v, reset, marked)
}

// hexInt reads what %x can have written, after a minus where one may stand, up
// to 2⁵³.
func hexInt(f string, signed bool) (int64, bool) {
	n, err := strconv.ParseInt(f, 16, 64)
	return n, err == nil && n <= 1<<53 && n >= -1<<53 && f[0] != '+' && (signed || f[0] != '-')
}

func negative(v ...int64) bool {
	for _, n := range v {
		if n < 0 {
			return true
		}
	}
	return false
}

func bucketState(k algo.Kind, v []int64, reset int64, marked bool) (State, bool) {
	if len(v) != 5 && len(v) != 8 || v[0] < 1 || v[3] < 1 || negative(v[4:]...) {
		return State{}, false
	}
	s := State{Kind: k, Unit: v[0], Level: v[1], Last: v[3] + v[2], Born: v[3], Since: v[4]}
	if marked {
		if s.Reset = v[3] + reset; s.Reset < 1 || s.Reset > 1<<53 {
			return State{}, false
		}
	}
	if len(v) == 8 {
		s.Out = [2]int64{v[6], v[7]}
		if v[5] > 0 {
			s.Slot = s.Last + v[5]
		}
	}
	return s, true
}

func windowState(k algo.Kind, v []int64, reset int64, marked bool) (State, bool) {
	if len(v) != 6 || v[0] < 1 || v[4] < 1 || negative(v...) || reset < 0 || v[0] > 1<<52 || v[1] > 1<<53/v[0] {
		return State{}, false
	}
	s := State{Kind: k, Period: v[0], Win: v[1], Cur: v[2], Prev: v[3], Born: v[4], Since: v[5]}
	if marked {
		if s.Reset = s.Win*s.Period + reset; s.Reset > 1<<53 {
			return State{}, false
		}
	}
	return s, true
}
