package hybridlimit

import "fmt"

// Algorithm is the way in which units are counted and come back.
type Algorithm uint8

// The algorithms. The zero value is the token bucket.
const (
	// AlgTokenBucket refills Rate units per Period up to Burst and admits
	// while units are left (the generic cell rate algorithm of ITU-T I.371 in
	// its token form).
	AlgTokenBucket Algorithm = iota
	// AlgLeakyBucket is the leaky bucket as a meter, which polices. It admits
	// the same calls as a token bucket of equal rate and burst.
	AlgLeakyBucket
	// AlgLeakyQueue is the leaky bucket as a queue, which shapes: Result.Delay
	// is the time to wait before forwarding.
	AlgLeakyQueue
	// AlgFixedWindow counts in windows aligned to the clock of Redis, or in
	// local to the clock of the process.
	AlgFixedWindow
	// AlgSlidingWindow estimates a trailing window from two counters. A true
	// trailing window may hold up to 2·Rate - 1.
	AlgSlidingWindow
	// AlgSlidingLog keeps the time of every admission for one Period. Its count
	// is exact.
	AlgSlidingLog

	// AlgUnlimited admits everything. It has no rate, period or burst, and
	// keeps no state.
	AlgUnlimited
	// AlgBlocked admits nothing. It has no rate, period or burst, and keeps no
	// state.
	AlgBlocked

	// AlgConcurrent counts the calls that run: at most Rate at once. It has no
	// period and no burst. Its limiters are Acquirers: no rate limiter accepts it.
	AlgConcurrent

	algorithms                // the number of algorithms
	stateful   = AlgUnlimited // only algorithms below it have a period
)

var algorithmNames = [algorithms]string{
	"token bucket", "leaky bucket", "leaky queue",
	"fixed window", "sliding window", "sliding log",
	"unlimited", "blocked", "concurrent",
}

// String returns the algorithm's name, for example "token bucket".
func (a Algorithm) String() string {
	if a < algorithms {
		return algorithmNames[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// windowed reports whether Rate is a count per window. If not, it is a refill.
func (a Algorithm) windowed() bool {
	return a == AlgFixedWindow || a == AlgSlidingWindow || a == AlgSlidingLog
}

// stateless reports whether the decision is always the same.
func (a Algorithm) stateless() bool { return a == AlgUnlimited || a == AlgBlocked }
