package census

import "time"

// Twice the time that a Redis core needs for a message of ops: so much for the message, and so much for each op.
const (
	perMessage = 170 * time.Microsecond
	perOp      = 30 * time.Microsecond
)

// MaxQueueing is that of the 20 000 processes that a Redis core carries on one key.
const MaxQueueing = 20_000 * (perMessage + perOp)

// Guess is the size of a fleet that is not known, and may keep a healthy Redis busy with its start.
const Guess = 10_000

// Queueing returns the time that a message may wait in the queue of a healthy Redis of a fleet of n processes: each of
// them has a message of so many ops there, after a cold start or a sudden load. A process that waits less sends its
// message again, so that the queue never ends.
func Queueing(n, ops int64) time.Duration {
	each := perMessage + perOp*time.Duration(max(ops, 1))
	return each * time.Duration(min(max(n, 0), int64(MaxQueueing/each)))
}
