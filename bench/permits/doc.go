// Command permits simulates limits on calls in flight in a fleet, before there is code for them. It prints the table and the
// searches of docs/decisions/0051-permits-by-membership.md:
//
//	go run ./permits          # the table, a few minutes
//	go run ./permits -search  # random schedules with faults, and the time until a killed process's permits are free
//
// Two designs share one process and differ in the way in which Redis learns that a process is gone:
//
//   - renewals: each holding of a process at a key is renewed. Redis keeps sums by period, and forgets the oldest.
//   - members: Redis keeps each holding. The heartbeat that counts the fleet shows which processes live. A refused
//     process looks there, and takes the holdings of dead processes off.
//
// Time is virtual, and each random number comes from the seed, so a result is the same on every machine.
//
// Files: world.go has time and the network; process.go a process, and heartbeat.go its heartbeats; server.go the part of Redis
// that both designs share; renewals.go and members.go the designs; load.go the table; search.go the schedules with faults.
package main
