package algo

import "github.com/hybridlimit/hybridlimit"

// Kind is an arithmetic. States of one are unreadable for another.
type Kind uint8

// The kinds. The zero value is the bucket.
const (
	KindBucket  Kind = iota // token bucket, and leaky bucket as a meter: bucket.go
	KindQueue               // leaky queue: queue.go
	KindFixed               // fixed window: fixed.go
	KindSliding             // sliding window of two counters: sliding.go
	KindLog                 // sliding log: log.go
)

// Letter is the kind in a limit's text and in a state's.
func (k Kind) Letter() byte { return "bqfsl"[k] }

// KindOf is the kind of an algorithm.
func KindOf(a hybridlimit.Algorithm) Kind {
	switch a {
	case hybridlimit.AlgLeakyQueue:
		return KindQueue
	case hybridlimit.AlgFixedWindow:
		return KindFixed
	case hybridlimit.AlgSlidingWindow:
		return KindSliding
	case hybridlimit.AlgSlidingLog:
		return KindLog
	}
	return KindBucket
}

// Limit is a limit of any kind whose state is a State: all but the log.
type Limit struct {
	Kind   Kind   // says which of the two
	Bucket Bucket // of a bucket or a queue
	Window Window // of a window
}

// LimitOf converts a valid limit. A sliding log is LogOf's.
func LimitOf(l hybridlimit.Limit) Limit {
	switch k := KindOf(l.Algorithm); k {
	case KindFixed, KindSliding:
		return Limit{Kind: k, Window: WindowOf(l)}
	default:
		return Limit{Kind: k, Bucket: BucketOf(l)}
	}
}

func (l Limit) window() bool { return l.Kind == KindFixed || l.Kind == KindSliding }

// Apply runs op at now and reports whether the state must be written. A state
// with Born 0 is one that nobody has used.
func (l Limit) Apply(s State, op Op, now int64) (State, Answer, bool) {
	if l.window() {
		return l.Window.Apply(s, op, now)
	}
	return l.Bucket.Apply(s, op, now)
}

// Load brings a state to now and into this limit's terms.
func (l Limit) Load(s State, now int64) State {
	if l.window() {
		return l.Window.Load(s, now)
	}
	return l.Bucket.Load(s, now)
}

// TTL is how many ms a state written at now must be kept.
func (l Limit) TTL(s State, now int64) int64 {
	if l.window() {
		return l.Window.TTL(s, now)
	}
	return l.Bucket.TTL(s)
}

// Unit is the sub-units of one unit.
func (l Limit) Unit() int64 {
	if l.window() {
		return l.Window.Unit
	}
	return l.Bucket.Unit
}

// Full is the level in sub-units at which nothing is used.
func (l Limit) Full() int64 {
	if l.window() {
		return l.Window.Cap
	}
	return l.Bucket.Cap
}
