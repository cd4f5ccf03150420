package member

import (
	"maps"
	"slices"
	"sync"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Wanted is the keys of windows that are used up, while other processes may hold some of their units in leases. The
// heartbeats carry their marks: see docs/decisions/0065-units-that-others-want.md.
type Wanted struct {
	told chan struct{} // has room for one: there is a mark to tell

	mu    sync.Mutex
	marks map[string]struct{} // to tell with the next heartbeat; at most wire.MaxWanted
	heard map[string]int64    // the marks in the last answer, and their times
}

func newWanted() Wanted {
	return Wanted{told: make(chan struct{}, 1), marks: map[string]struct{}{}}
}

// Tell makes the next heartbeat carry a mark, and makes it due soon. If a process has told the mark just now, the
// holders know it. With too many marks it does nothing: the next refusal tells the key again.
func (w *Wanted) Tell(mark string) {
	w.mu.Lock()
	_, known := w.heard[mark]
	if known = known || len(w.marks) >= wire.MaxWanted; !known {
		w.marks[mark] = struct{}{}
	}
	w.mu.Unlock()
	if known {
		return
	}
	select {
	case w.told <- struct{}{}:
	default:
	}
}

// take returns the marks to tell, sorted. If their heartbeat fails they are lost.
func (w *Wanted) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	marks := slices.Sorted(maps.Keys(w.marks))
	clear(w.marks)
	return marks
}

// news returns the marks that were told since the last answer.
func (w *Wanted) news(all []wire.Mark) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var fresh map[string]bool
	heard := make(map[string]int64, len(all))
	for _, m := range all {
		if heard[m.Text] = m.At; w.heard[m.Text] != m.At {
			if fresh == nil {
				fresh = map[string]bool{}
			}
			fresh[m.Text] = true
		}
	}
	w.heard = heard
	return fresh
}
