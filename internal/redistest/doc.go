// Package redistest gives tests a Redis to talk to, and ways to make it fail.
//
// Which piece to pick:
//
//   - [New] (or [Start], where no test is at hand): a redis-server process of
//     its own, which can be killed, stopped with SIGSTOP and restarted empty.
//     For whatever must hold on the real thing.
//   - [NewProxy]: a TCP proxy in front of a real server. For faults that a
//     process cannot be made to show: this reply lost, that request executed
//     twice, the connection half-open.
//   - [Mini]: a miniredis on a loopback port. For tests of plumbing, where
//     starting a process would be the slowest part.
//   - [NewBubble]: a miniredis inside a testing/synctest bubble, where a day
//     costs milliseconds and a time-out fires at the exact nanosecond.
//   - [Bubble.Link]: the faults of the proxy, and latency, between one client
//     and the Redis of a bubble. A fleet has one link per process.
//
// Proxy and link are one machine ([Link]) over different connections, and speak
// one vocabulary: a [Script] sees each request and returns a [Verdict].
//
// The package does not import testing: [TB] names the few methods needed, so a
// program may use [Start] without carrying the test framework.
package redistest
