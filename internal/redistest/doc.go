// Package redistest gives tests a Redis to talk to, and ways to make it fail.
//
// Choose one:
//
//   - [New] (outside a test: [Start]) is a redis-server process of its own. It
//     can be killed, stopped with SIGSTOP and restarted empty. Use it for
//     properties that must hold on a real server.
//   - [NewProxy] is a TCP proxy in front of a real server. Use it for faults of
//     the network: a lost reply, a request that is executed twice, a half-open
//     connection.
//   - [Mini] is a miniredis on a loopback port. Use it for tests in which the
//     start of a process would be the slowest part.
//   - [NewBubble] is a miniredis inside a testing/synctest bubble. A day costs
//     milliseconds there, and a time-out fires at the exact nanosecond.
//   - [Bubble.Link] has the faults of the proxy, and latency, between one client
//     and the Redis of a bubble. A fleet has one link per process.
//
// Proxy and link use the same code ([Link]) over different connections, and the
// same words: a [Script] sees each request and returns a [Verdict].
//
// The package does not import testing: [TB] has the few methods that it needs. So
// a program can use [Start] without the test framework.
package redistest
