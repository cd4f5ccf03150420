package hybridlimit

import "fmt"

// Algorithm says how units are counted and when they come back.
type Algorithm uint8

// The algorithms. The zero value is the token bucket.
const (
	// AlgTokenBucket refills Rate units per Period up to Burst and admits
	// while units are left (the generic cell rate algorithm of ITU-T I.371 in
	// its token form).
	AlgTokenBucket Algorithm = iota
	// AlgLeakyBucket is the leaky bucket as a meter: it polices, and admits
	// what an equal token bucket admits.
	AlgLeakyBucket
	// AlgLeakyQueue is the leaky bucket as a queue: it shapes, and says how
	// long to wait before forwarding.
	AlgLeakyQueue
	// AlgFixedWindow counts in windows aligned to the clock of Redis; in local
	// to that of the process.
	AlgFixedWindow
	// AlgSlidingWindow estimates a trailing window from two counters. A true
	// trailing window may hold up to 2·Rate - 1.
	AlgSlidingWindow
	// AlgSlidingLog keeps every admission's time for one Period: exact.
	AlgSlidingLog

	// AlgUnlimited admits everything. It has no rate, period or burst, and
	// keeps no state.
	AlgUnlimited
	// AlgBlocked admits nothing. It has no rate, period or burst, and keeps no
	// state.
	AlgBlocked

	algorithms                // how many there are
	stateful   = AlgUnlimited // those below it have a rate
)

var algorithmNames = [algorithms]string{
	"token bucket", "leaky bucket", "leaky queue",
	"fixed window", "sliding window", "sliding log",
	"unlimited", "blocked",
}

// String returns the algorithm's name in words, "token bucket" for example.
func (a Algorithm) String() string {
	if a < algorithms {
		return algorithmNames[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// windowed reports whether Rate is a count per window rather than a refill.
func (a Algorithm) windowed() bool {
	return a == AlgFixedWindow || a == AlgSlidingWindow || a == AlgSlidingLog
}

// stateless reports whether the answer is the same whatever was admitted.
func (a Algorithm) stateless() bool { return a == AlgUnlimited || a == AlgBlocked }
