package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
)

// restoring is a Redis that has lost its memory and is being told.
type restoring struct {
	since    time.Time
	resynced int64 // before
}

// resynced is how often any process has told Redis something that it had lost,
// those that are no more too.
func (f *fleet) resynced() int64 {
	n := f.gone.resynced
	for _, s := range f.slots {
		if !s.crashed {
			n += s.limiter.Stats().Resynced
		}
	}
	return n
}

// forgets begins to wait for the fleet to tell Redis what it has lost. before is
// what resynced was.
func (f *fleet) forgets(before int64) {
	f.watch.lost = true
	f.restored = &restoring{time.Now(), before}
}

// lookAtMemory notes, when processes have told Redis what it had lost, what it
// now has.
func (f *fleet) lookAtMemory(now time.Time) {
	r := f.restored
	if r == nil || now.Sub(r.since) < 500*time.Millisecond {
		return
	}
	told := f.resynced() - r.resynced
	closed := true
	for _, s := range f.slots {
		closed = closed && (s.crashed || s.frozen.Load() || s.limiter.Stats().Breaker == breaker.Closed)
	}
	// What a process does not tell at once it tells within a second.
	if !closed || told == 0 && now.Sub(r.since) < 2*time.Second {
		return
	}
	limit := f.settings.limit()
	observer, err := newObserver(f.store, limit)
	var res hybridlimit.Result
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
		defer cancel()
		res, err = observer.Peek(ctx, hotKey)
	}
	if err != nil {
		// The first connection may be one to the Redis that died.
		if now.Sub(r.since) > 10*time.Second {
			f.restored = nil
			f.note(kindWarn, "What Redis now counts cannot be seen: %v.", err)
		}
		return
	}
	f.restored = nil
	used := limit.BurstSize() - res.Remaining
	what := fmt.Sprintf("Restored %d units: the fleet has told Redis what it had lost", used)
	if told == 0 {
		what = "There was nothing to restore: what Redis had lost would have come back by now"
	}
	f.note(kindRedis, "%s; it counts %d of %d units as used.", what, used, limit.BurstSize())
}
