package algo

import "github.com/hybridlimit/hybridlimit"

// Kind is one of the arithmetics. A state of one kind is unreadable for another.
type Kind uint8

// The kinds. The zero value is the bucket.
const (
	KindBucket   Kind = iota // token bucket, and leaky bucket as a meter: bucket.go
	KindQueue                // leaky queue: queue.go
	KindFixed                // fixed window: fixed.go
	KindSliding              // sliding window of two counters: sliding.go
	KindLog                  // sliding log: log.go
	KindCalendar             // window of a calendar: calendar.go
)

// Letter returns the letter of the kind in the text of a limit and of a state.
func (k Kind) Letter() byte { return "bqfslm"[k] }

// KindOf returns the kind of an algorithm.
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
	case hybridlimit.AlgCalendarWindow:
		return KindCalendar
	}
	return KindBucket
}

// Limit is a limit of any kind except the log: the kinds whose state is a State.
type Limit struct {
	Kind   Kind   // selects one of the two
	Bucket Bucket // of a bucket or a queue
	Window Window // of a window
}

// LimitOf converts a valid limit. For a sliding log, see LogOf.
func LimitOf(l hybridlimit.Limit) Limit {
	switch k := KindOf(l.Algorithm); k {
	case KindFixed, KindSliding, KindCalendar:
		return Limit{Kind: k, Window: WindowOf(l)}
	default:
		return Limit{Kind: k, Bucket: BucketOf(l)}
	}
}

func (l Limit) window() bool {
	return l.Kind == KindFixed || l.Kind == KindSliding || l.Kind == KindCalendar
}

// Apply runs op at now and reports whether the state must be written. A state with Born 0 is that of an unused key.
func (l Limit) Apply(s State, op Op, now int64) (State, Answer, bool) {
	if l.window() {
		return l.Window.Apply(s, op, now)
	}
	return l.Bucket.Apply(s, op, now)
}

// Load advances a state to now and converts it to this limit.
func (l Limit) Load(s State, now int64) State {
	if l.window() {
		return l.Window.Load(s, now)
	}
	return l.Bucket.Load(s, now)
}

// TTL returns the ms for which a state written at now must be kept.
func (l Limit) TTL(s State, now int64) int64 {
	if l.window() {
		return l.Window.TTL(s, now)
	}
	return l.Bucket.TTL(s)
}

// Unit returns the sub-units of one unit.
func (l Limit) Unit() int64 {
	if l.window() {
		return l.Window.Unit
	}
	return l.Bucket.Unit
}

// Full returns the level of an unused key, in sub-units.
func (l Limit) Full() int64 {
	if l.window() {
		return l.Window.Cap
	}
	return l.Bucket.Cap
}
