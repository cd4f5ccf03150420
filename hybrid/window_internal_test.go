package hybrid

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// windowTerms is stepTerms for a fixed window of 10 a second.
func windowTerms() *terms {
	t, r := stepTerms(), newRules(hybridlimit.FixedWindow(10, time.Second))
	t.bucket, t.window, t.limit = r.Bucket, r.Window, r.limit
	return t
}

// inWindow is a state that heard at 1 s of a window's level and of its end, a
// round trip after it had asked at that time of Redis.
func inWindow(t *terms, redisNow, level, ends int64) *state {
	s := &state{frozen: true}
	s.settle(t, answer{Answer: algo.Answer{Level: level, Cap: t.bucket.Cap, Ends: ends}, redisNow: redisNow, sent: sec - ms}, nil, sec)
	return s
}

// While a clock that stepped back is before the window that Redis counts in,
// what is owed is of that one, not of the one that the clock shows: it would
// count in the last one, or, two windows back, not at all.
func TestOwedNamesTheWindowThatEnds(t *testing.T) {
	tm := windowTerms()
	for _, tc := range []struct {
		name           string
		redisNow, ends int64
		window         int64
	}{
		{"at its begin", 5e6, 1e6, 5},
		{"at its end", 6e6 - 1, 1, 5},
		{"the clock stepped back before it", 5e6 - 1, 1e6 + 1, 5},
		{"by a second", 4e6, 2e6, 5},
	} {
		s := inWindow(tm, tc.redisNow, 10, tc.ends)
		s.owe(3)
		if op, _ := s.freeze(tm, nil, sec); op.Win != tc.window || op.Owed != 3 {
			t.Errorf("%s: %d units owed of window %d, want 3 of %d", tc.name, op.Owed, op.Win, tc.window)
		}
	}
}
