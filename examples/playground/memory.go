package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
)

// restoring is the state after Redis has lost its memory, until the fleet has restored it.
type restoring struct {
	since    time.Time
	resynced int64 // the value of resynced before the loss
}

// resynced returns how often the processes have told Redis something that it had lost. It includes retired processes.
func (f *fleet) resynced() int64 {
	n := f.gone.resynced
	for p := range f.alive {
		n += p.limiter.Stats().Resynced
	}
	return n
}

// forgets begins to wait until the fleet has told Redis what it has lost. before is the value of resynced before the
// loss.
func (f *fleet) forgets(before int64) {
	f.watch.lost = true
	f.restored = &restoring{time.Now(), before}
}

// lookAtMemory logs the state of Redis after the processes have told it what it had lost.
func (f *fleet) lookAtMemory(now time.Time) {
	r := f.restored
	if r == nil || now.Sub(r.since) < 500*time.Millisecond {
		return
	}
	told := f.resynced() - r.resynced
	closed := true
	for p := range f.alive {
		closed = closed && (p.frozen.Load() || p.limiter.Stats().Breaker == breaker.Closed)
	}
	// A process that does not tell Redis at once does so within a second.
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
		// The first connection may still be to the Redis that died.
		if now.Sub(r.since) > 10*time.Second {
			f.restored = nil
			f.note(kindWarn, "The count in Redis cannot be read: %v.", err)
		}
		return
	}
	f.restored = nil
	used := limit.BurstSize() - res.Remaining
	what := fmt.Sprintf("Restored %d units: the fleet has told Redis what it had lost", used)
	if told == 0 {
		what = "There was nothing to restore: by now the lost units would have been refilled"
	}
	f.note(kindRedis, "%s; it counts %d of %d units as used.", what, used, limit.BurstSize())
}
