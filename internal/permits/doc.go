// Package permits is the protocol of limits on calls in flight in one process of a fleet. A permit is the right to run
// one call. Redis has, for each key, the permits that each process holds (lua/permits.lua; package permitstest is the
// same in Go). A process admits calls from what it holds, and asks Redis when that is not enough.
//
// The package is pure. Time is an argument, in ns of a monotonic clock. It has no clock, lock, goroutine, log or
// network; internal/test/house checks that. Its caller is the shell:
//
//	Member   one for each process: its heartbeats, and those of the holders that stood in its way
//	Holding  one for each key, behind a lock: its permits, and the calls that run or wait
//	Lane     one for each tag: the keys with something to send, and the message in flight
//	Op       the part of a message about one key; its Reply
//
// The shell calls one method of Holding per event:
//
//	Acquire, Wait, Leave, Release  a call comes, waits, gives up waiting, ends
//	Next, Denied, Settle           after each event: calls that start, calls that are denied, and whether an op is due
//	Op, Hear, Lost                 a message is sent, is answered, or got no answer
//	Tell, Adapt, Reset, Rename     all holdings are told again, another limit, Redis must learn the key again, another identity
//	Accuse                         after a heartbeat: are holders dead?
//
// # Guarantee
//
// The calls in flight of the fleet never exceed the limit, except in these cases:
//
//   - Calls that outlive the membership of their process: it was cut off from Redis, or did not run, for longer than
//     1.8 periods. When it is back, it tells them, and nothing new starts there until they fit.
//   - Calls that the fallback admits, while the process is not a member, or Redis is away or learns.
//   - After an eviction of a key, until a holder sends its next op. After a failover that loses writes, until a process
//     misses one of its messages. docs/decisions/0051-permits-by-membership.md has the number of calls.
//   - After a Reset by a process that ends before its next heartbeat.
//   - While processes have different limits, the largest of them counts.
//
// # Rules
//
//   - A message takes effect once, and not after its successor: each attempt to send has a greater number.
//   - An op tells absolute counts. A permit that it gives back is not used while the answer is on its way.
//   - A process is a member for 1.8 periods from the sending of its last answered heartbeat. A holder is dead if its
//     heartbeat did not change for 1.8 periods on the clock of another process, which takes the holding off by the
//     number of the message that wrote it.
//   - A process that was away tells its holdings before it uses them. It tells the give-backs of the last 13 s before,
//     too.
//   - After a loss, Redis grants nothing for three periods. All processes hear of the loss with their heartbeats, and
//     tell their holdings. In this time, permits of calls of the fallback are not used again.
//   - A call for several permits gets all of them in one answer. It keeps none while it waits.
//   - Each call pays for one ask and one give-back. One op a second for a key is free, so that nothing is stuck.
package permits
