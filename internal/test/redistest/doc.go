// Package redistest gives tests a Redis, and ways to make it fail.
//
// The parts and their uses:
//
//   - [New] (or [Start], outside tests): a separate redis-server process, which can be killed, stopped with SIGSTOP and
//     restarted empty. For tests that must run on a real Redis.
//   - [NewProxy]: a TCP proxy in front of a real server. For faults that a process cannot produce on demand: a lost
//     reply, a request that is executed twice, a half-open connection.
//   - [Mini]: a miniredis on a loopback port. For simple tests in which the start of a process would be the slowest
//     part.
//   - [NewBubble]: a miniredis inside a testing/synctest bubble. A day of virtual time costs milliseconds, and a
//     time-out fires at the exact nanosecond.
//   - [Bubble.Link]: the faults of the proxy, and latency, between one client and the Redis of a bubble. A fleet has
//     one link per process.
//
// The proxy and the link share their code ([Link]) and differ in their connections. In both, a [Script] sees each
// request and returns a [Verdict].
//
// The package does not import testing. [TB] has the few methods that it needs, so a program can use [Start] without the
// test framework.
package redistest
