package census

import "time"

const (
	// perProcess is twice the time that a Redis core needs for a message with one op.
	perProcess = 200 * time.Microsecond
	// MaxQueueing is that of the 20 000 processes that a Redis core carries on one key.
	MaxQueueing = 20_000 * perProcess
)

// Queueing returns the time that a message may wait in the queue of a healthy Redis of a fleet of n processes: each of
// them has a message there, after a cold start or a sudden load. A process that waits less sends its message again, so
// that the queue never ends.
func Queueing(n int64) time.Duration {
	return perProcess * time.Duration(min(max(n, 0), int64(MaxQueueing/perProcess)))
}
