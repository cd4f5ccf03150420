package member

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/census"
)

// Queueing is the time that a message of this process may wait in the queue of a healthy Redis. It depends on the size
// of the fleet. The zero Queueing is that of a process that has not heard of Redis.
type Queueing struct {
	now   atomic.Int64 // ns
	sized atomic.Bool  // the size of the fleet is known
}

// Now returns the time; 0 before the size of the fleet is known.
func (q *Queueing) Now() time.Duration { return time.Duration(q.now.Load()) }

// Sized notes the size of the fleet, if it was counted or told.
func (q *Queueing) Sized(all []*Party) {
	if !slices.ContainsFunc(all, func(l *Party) bool { return l.Beats() > 0 || l.Hint > 0 }) {
		return
	}
	q.sized.Store(true)
	q.now.Store(int64(census.Queueing(Size(all))))
}

// Opened notes that a breaker has opened. If the size of the fleet is not known, it may be a large one, which keeps a
// healthy Redis busy with its start.
func (q *Queueing) Opened() {
	if !q.sized.Load() {
		q.now.CompareAndSwap(0, int64(census.MaxQueueing/2))
	}
}
