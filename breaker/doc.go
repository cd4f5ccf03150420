// Package breaker has the settings, states and changes of the circuit breaker that package hybrid puts between itself
// and Redis. A circuit breaker stops calls to a server that fails. Single calls, the probes, test whether the server is
// back.
//
// While the breaker is not Closed, limiters decide from the state in this
// process ([github.com/hybridlimit/hybridlimit.SourceFallback]).
//
//	          Failures in a row, or FailureRatio of
//	          at least MinCalls ended calls in Window
//	┌────────┐                                        ┌──────┐
//	│ Closed │ ─────────────────────────────────────▶ │ Open │ ◀──────┐
//	└────────┘                                        └──────┘        │
//	    ▲                                                 │           │
//	    │                           the next call, after  │           │ the probe failed
//	    │                     a random [0.5, 1.5)·OpenFor │           │ or was slow
//	    │                                                 ▼           │
//	    │   the probe succeeded                      ┌──────────┐     │
//	    └─────────────────────────────────────────── │ HalfOpen │ ────┘
//	                                                 └──────────┘
//	                                the probe was cancelled or lost:
//	                                the next call is the next probe
//
// A call fails when Redis does not answer, when it answers that it cannot serve, or when it takes longer than SlowCall.
// These replies come from a healthy Redis and do not count: NOSCRIPT, "Function not found", MOVED, ASK, TRYAGAIN. A
// call that its caller cancelled does not count, unless it took longer than SlowCall.
package breaker
