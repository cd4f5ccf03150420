// Package limittest has limiters for tests of code that uses a hybridlimit.Limiter:
//
//	AllowAll  admits everything
//	DenyAll   denies everything
//	Play      returns prepared results
//	Record    records the calls of another limiter
//
//	PlayPermits    returns prepared results for calls in flight, with permits
//	RecordPermits  records the calls of a limiter of calls in flight, and finds
//	               permits that are never released
//
// They return the errors of real limiters for invalid keys and costs, so that a test does not pass with a call that
// fails in production. Make them with the functions: the zero values do not work.
//
// # Real limiters in tests
//
// The limiters of packages local, global and hybrid take the time from package time only, and start no goroutine that
// outlives Close. They therefore work in a bubble of testing/synctest, where a minute takes no real time. Make and
// close the limiter in the bubble, as the package's example does.
//
// A limiter that uses Redis needs a Redis with connections in the same bubble, such as miniredis 2.40 or newer, with
// its Dial as redis.Options.Dialer. Addr must be an IP address, because a name needs a resolver outside the bubble.
package limittest
