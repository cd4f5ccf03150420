// Package census counts the processes of a fleet, as one process knows them from the answers to its heartbeats. It
// reads no clock: times are ns of the caller's monotonic clock.
package census

import (
	"slices"
	"sync/atomic"
	"time"
)

// The times of the heartbeats by which processes count each other.
const (
	Every  = time.Second     // between two beats of a process
	Expiry = 3 * time.Second // of a beat in Redis
	// Stale is the age at which the count from a process's own beat is no longer valid. It is also the time for which a
	// new process gives no credit. A process that gives credit has sent a beat within this time, so its count includes
	// all other processes.
	Stale = Every + Every/2
	// Kept is the number of counts that must agree that the fleet has shrunk. After a wipe, Redis first counts one
	// process, and the others within a beat. With that count as N, each process would have the credit and the share of
	// the whole fleet.
	Kept = 3
)

// Census is the count of one fleet. One goroutine may call Counted; any goroutine may call the other methods. The zero
// Census has counted nothing.
type Census struct {
	Hint    int64 // the least N before the second answered beat; 0: 1
	Classes int64 // of the limiter in this process; 0: 1

	n     atomic.Int64 // the largest of the last counts
	all   atomic.Int64 // as n, of accounts
	beats atomic.Int64 // number of counts
	first atomic.Int64 // ns; the time at which the first beat after the last gap was answered
	last  atomic.Int64 // ns; the time at which the last answered beat was sent

	counts [Kept]int64 // the last counts of processes
	alls   [Kept]int64 // and of accounts
	began  int64       // ns; the time at which the beat of the last of them was sent
}

// apart is the least time between two counts. A beat that is sent sooner belongs to the count before: the processes of
// a wiped Redis need a beat each until all are counted again.
const apart = Every * 9 / 10

// Counted notes the answer to a beat that was sent at sent: n processes are live. accounts is their number with each
// process counted once for each of its classes.
func (c *Census) Counted(n, accounts, sent, now int64) {
	if c.beats.Load() == 0 || sent-c.last.Load() > int64(Stale) {
		c.first.Store(now) // other processes may have joined and left in the gap
	}
	if c.beats.Load() == 0 || sent-c.began >= int64(apart) {
		i := c.beats.Add(1) % Kept
		c.counts[i], c.alls[i], c.began = n, accounts, sent
	} else {
		i := c.beats.Load() % Kept
		c.counts[i], c.alls[i] = max(c.counts[i], n), max(c.alls[i], accounts)
	}
	c.n.Store(slices.Max(c.counts[:]))
	c.all.Store(slices.Max(c.alls[:]))
	c.last.Store(sent)
}

// Beats returns the number of answered beats, without those that were sent right after another.
func (c *Census) Beats() int64 { return c.beats.Load() }

// Since returns the time (ns) at which the first beat after the last gap was answered.
func (c *Census) Since() int64 { return c.first.Load() }

// Size returns N, at least 1.
func (c *Census) Size() int64 {
	n := max(1, c.n.Load())
	if c.beats.Load() < 2 {
		n = max(n, c.Hint)
	}
	return n
}

// Accounts returns the number of accounts that a key may have in the fleet: the processes, each counted once for each
// of its classes. Until the second answered beat, all processes count with the classes of this one.
func (c *Census) Accounts() int64 {
	n := c.Size()
	if c.beats.Load() < 2 {
		n *= max(1, c.Classes)
	}
	return max(n, c.all.Load())
}

// Known reports whether N may be used for credit: the last counts of this process and of all others include each other.
func (c *Census) Known(now int64) bool {
	return c.beats.Load() >= 2 && now-c.first.Load() >= int64(Stale) && now < c.Ends()
}

// Ends returns the time (ns) at which the last count becomes invalid.
func (c *Census) Ends() int64 { return c.last.Load() + int64(Stale) + 1 }
