// Package callfleet runs whole fleets under a limit of calls in flight, in virtual time, from one seed. A [Scenario]
// describes the calls. A [Report] has the results. No process ends, and no message is lost: internal/permits has the
// search with faults.
//
// The kinds of limiter get the same calls at the same times:
//
//	Engine     the engine that ships, internal/permits, with Redis's side in Go (permitstest); the shell here does what the one of
//	           package hybrid does without faults
//	Limiter    hybrid.ConcurrencyLimiter with the real scripts on miniredis, in a testing/synctest bubble
//	SortedSet  the messages and admissions of a sorted set in Redis: bench/rivals has the real one
//	Central    one semaphore in one place, whose messages take no time
//
// Engine costs a few µs for a message. Limiter costs about 1 ms for a message, and as much for each second of each
// process, because its clock ticks. So Limiter is for short runs.
//
// The package is for tests and for the lab in bench/accuracy. The product does not import it.
package callfleet
