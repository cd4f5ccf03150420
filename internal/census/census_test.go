package census

import (
	"testing"
	"time"
)

func TestFleetSize(t *testing.T) {
	const s = int64(time.Second)
	type beat struct{ n, sent int64 }
	for _, test := range []struct {
		name  string
		hint  int64
		beats []beat
		now   int64
		want  int64
		known bool
	}{
		{"no count", 0, nil, 0, 1, false},
		{"the hint stands for it", 7, nil, 0, 7, false},
		{"one count may be too low", 7, []beat{{3, 0}}, s, 7, false},
		{"two are believed", 7, []beat{{3, 0}, {3, s}}, s, 3, false},
		{"a newcomer is silent for 1.5 s", 0, []beat{{3, 0}, {3, s}}, s + s/2, 3, true},
		{"its own heartbeat is stale", 0, []beat{{3, 0}, {3, s}}, 3 * s, 3, false},
		{"growth counts at once", 0, []beat{{3, 0}, {3, s}, {9, 2 * s}}, 2 * s, 9, true},
		{"a wiped Redis counts one", 0, []beat{{4, 0}, {4, s}, {4, 2 * s}, {1, 3 * s}}, 3 * s, 4, true},
		{"and the others a beat later", 0, []beat{{4, 0}, {4, s}, {4, 2 * s}, {1, 3 * s}, {4, 4 * s}}, 4 * s, 4, true},
		{"three counts say that it shrank", 0, []beat{{4, 0}, {4, s}, {1, 2 * s}, {1, 3 * s}, {1, 4 * s}}, 4 * s, 1, true},
		{"counts in quick succession are one", 0, []beat{{4, 0}, {4, s}, {1, 2 * s}, {1, 2*s + s/4}, {1, 2*s + s/2}}, 2*s + s/2, 4, true},
		{"which may only grow", 0, []beat{{4, 0}, {4, s}, {1, 2 * s}, {7, 2*s + s/4}, {1, 2*s + s/2}}, 2*s + s/2, 7, true},
		{"and two of them are not two beats", 7, []beat{{3, 0}, {3, s / 4}}, 2 * s, 7, false},
		{"after an outage nobody is sure", 0, []beat{{4, 0}, {4, s}, {1, 9 * s}}, 9 * s, 4, false},
		{"until 1.5 s of beats", 0, []beat{{4, 0}, {4, s}, {1, 9 * s}, {4, 10 * s}}, 10*s + s/2, 4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &Census{Hint: test.hint}
			for _, b := range test.beats {
				f.Counted(b.n, 2*b.n, b.sent, b.sent)
			}
			if got := f.Size(); got != test.want {
				t.Errorf("N = %d, want %d", got, test.want)
			}
			if got := f.Known(test.now); got != test.known {
				t.Errorf("known = %v, want %v", got, test.known)
			}
		})
	}
}

// TestAccounts checks that accounts are kept as processes are, and that an uncounted fleet has the classes of this process.
func TestAccounts(t *testing.T) {
	const s = int64(time.Second)
	f := &Census{Hint: 7, Classes: 3}
	if got := f.Accounts(); got != 21 {
		t.Errorf("7 processes of 3 classes have %d accounts, want 21", got)
	}
	f.Counted(7, 11, 0, 0)
	f.Counted(7, 11, s, s)
	if got := f.Accounts(); got != 11 {
		t.Errorf("%d accounts, counted were 11", got)
	}
	f.Counted(1, 2, 2*s, 2*s)
	if got := f.Accounts(); got != 11 {
		t.Errorf("%d accounts after one lower count, want 11", got)
	}
	if got := new(Census).Accounts(); got != 1 {
		t.Errorf("without a count there are %d accounts", got)
	}
}
