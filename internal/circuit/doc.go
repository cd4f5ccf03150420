// Package circuit is a circuit breaker for the calls to one Redis: the engine behind package breaker, which has its
// settings and states. It decides when to stop calling. It lets one call at a time test whether Redis is back. It tells
// errors that concern the health of Redis from errors that do not.
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
// The goroutine that talks to Redis calls Begin and End once per message. They take a lock that is never held during
// I/O or a callback. In the closed state a call allocates once (see [Breaker.Begin]). All other code calls
// [Breaker.State], which is one atomic load.
//
// A call counts as a failure in two cases: [Classify] says so of its error, or it took longer than SlowCall. For a rate
// limiter, a Redis that answers after two seconds is as useless as one that does not answer.
//
// The state machine and its counts are those of github.com/sony/gobreaker/v2. This package adds:
//
//   - the classification of errors,
//   - slow calls,
//   - an open time that differs between processes, so that the processes of a
//     fleet do not probe at the same moment,
//   - replacement of probes that never end,
//   - callbacks that may call the breaker.
//
// # Limits
//
// The package sets no time-outs. It does not see a call that never ends, so the caller must bound every call. It does
// not retry. It does not limit the number of calls in flight while closed. It has no keys: make one Breaker per Redis,
// or one per shard if shards fail independently. It classifies errors of go-redis only.
//
// It starts no goroutine and no timer, so it needs no Close.
package circuit
