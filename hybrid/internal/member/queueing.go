package member

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/census"
)

// Queueing has the size of the fleet on which the time depends that a message of this process may wait in the queue of a
// healthy Redis. The zero Queueing is that of a process that has not heard of Redis.
type Queueing struct {
	n     atomic.Int64
	sized atomic.Bool // n was counted or told
}

// Of returns the time for messages of so many ops; 0 before the size of the fleet is known.
func (q *Queueing) Of(ops int64) time.Duration { return census.Queueing(q.n.Load(), ops) }

// Sized notes the size of the fleet, if it was counted or told.
func (q *Queueing) Sized(all []*Party) {
	if !slices.ContainsFunc(all, func(l *Party) bool { return l.Beats() > 0 || l.Hint > 0 }) {
		return
	}
	q.sized.Store(true)
	q.n.Store(Size(all))
}

// Opened notes that a breaker has opened. If the size of the fleet is not known, it may be a large one: see
// census.Guess.
func (q *Queueing) Opened() {
	if !q.sized.Load() {
		q.n.CompareAndSwap(0, census.Guess)
	}
}
