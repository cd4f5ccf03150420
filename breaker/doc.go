// Package breaker is a circuit breaker for calls to one Redis. It says when to
// stop asking, lets one call at a time find out whether asking makes sense
// again, and knows which errors are about the health of a Redis and which are
// not.
//
//	          Failures in a row, or FailureRatio of
//	          at least MinCalls ended calls in Window
//	┌────────┐                                        ┌──────┐
//	│ Closed │ ─────────────────────────────────────▶ │ Open │ ◀──────┐
//	└────────┘                                        └──────┘        │
//	    ▲                                                 │           │
//	    │                            Begin, once a random │           │
//	    │                         [0.5, 1.5)·OpenFor is over          │ the probe failed
//	    │                                                 ▼           │ or was slow
//	    │   the probe succeeded                      ┌──────────┐     │
//	    └─────────────────────────────────────────── │ HalfOpen │ ────┘
//	                                                 └──────────┘
//	                                    the probe was ignored or lost:
//	                                    the next Begin is the next probe
//
// A caller brackets each call:
//
//	call, ok := b.Begin()
//	if !ok {
//		return fallback() // do not call Redis now
//	}
//	start := time.Now()
//	err := redisCall()
//	call.End(time.Since(start), err)
//
// Begin and End are for the goroutine that talks to Redis, once per message:
// they take a lock that is never held over I/O or a callback, and in the closed
// state one of them allocates (see [Breaker.Begin]). Everybody else asks
// [Breaker.State], which is one atomic load.
//
// A call counts as a failure when its error says so ([Classify]) or when it
// took longer than SlowCall: a Redis that answers in two seconds is of no more
// use to a rate limiter than one that does not answer.
//
// The state machine and its counts are those of github.com/sony/gobreaker/v2.
// This package adds what a Redis and a fleet need: the classification, slow
// calls, an open time that differs from process to process (a fleet that opened
// together must not knock together), probes that die without a word, and
// callbacks that may call back.
//
// # What it is not for
//
// It sets no time-outs: a call that never ends is not seen until it ends, so
// bound every call. It does not retry. It does not limit how many calls are in
// flight while closed. It is no rate limiter and has no keys: make one Breaker
// per Redis, or per shard where shards fail on their own. And it knows the
// errors of Redis only; use gobreaker itself for anything else.
//
// It starts no goroutine and no timer, so there is nothing to close.
package breaker
