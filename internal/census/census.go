// Package census is the size of a fleet as one process knows it, from the answers to its heartbeats. It reads no clock: times are
// ns of a monotonic clock that the caller has.
package census

import (
	"slices"
	"sync/atomic"
	"time"
)

// The heartbeat by which processes count each other.
const (
	Every  = time.Second     // between two beats of a process
	Expiry = 3 * time.Second // of a beat in Redis
	// Stale is the age from which a process's own beat no longer tells it who else is there, and how long a newcomer is silent. A
	// process that gives credit has beaten, and so heard of all others, within this time.
	Stale = Every + Every/2
	// Kept is how many counts must agree that the fleet has shrunk. A Redis that was wiped counts one process at first, and the
	// others within a beat. Taking that for N would give each of them the credit and the share of all.
	Kept = 3
)

// Census is the count of one fleet. Counted is for one goroutine, the other methods for any. The zero Census has counted nothing.
type Census struct {
	Hint int64 // N until two beats have counted; 0: 1

	n     atomic.Int64 // the most that any of the last counts said
	beats atomic.Int64 // answered
	first atomic.Int64 // ns; when the first beat without a gap was answered
	last  atomic.Int64 // ns; when the last answered beat was sent

	counts [Kept]int64 // the last counts
}

// Counted notes the answer to a beat that was sent at sent: n processes are there.
func (c *Census) Counted(n, sent, now int64) {
	if c.beats.Load() == 0 || sent-c.last.Load() > int64(Stale) {
		c.first.Store(now) // other processes may have come and gone unseen
	}
	i := c.beats.Add(1)
	c.counts[i%Kept] = n
	c.n.Store(slices.Max(c.counts[:]))
	c.last.Store(sent)
}

// Beats is how many beats were answered.
func (c *Census) Beats() int64 { return c.beats.Load() }

// Since is when (ns) the first beat was answered after which there was no gap.
func (c *Census) Since() int64 { return c.first.Load() }

// Size is N, at least 1.
func (c *Census) Size() int64 {
	n := max(1, c.n.Load())
	if c.beats.Load() < 2 {
		n = max(n, c.Hint)
	}
	return n
}

// Known reports whether N may be trusted for credit: this process has been seen by all others and has seen them, lately.
func (c *Census) Known(now int64) bool {
	return c.beats.Load() >= 2 && now-c.first.Load() >= int64(Stale) && now < c.Ends()
}

// Ends is until when (ns) the last count may be believed.
func (c *Census) Ends() int64 { return c.last.Load() + int64(Stale) + 1 }
