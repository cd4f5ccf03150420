// Package hybrid limits a whole fleet at memory speed: each process decides
// locally, processes sync with Redis in batches, and a circuit breaker
// switches to local-only limits while Redis does not answer.
//
// # Model
//
// For each key a process holds a lease (units already debited in Redis and
// not yet spent) or spends on credit (units that Redis hears of at the next
// sync, at most C of them). A decision takes units from the one or the other
// and returns. Only when both run out does it wait for Redis, for at most
// Config.MaxWait. A key that Redis has proved empty is denied locally until it
// can have refilled; while units are scarce processes take turns at asking, so
// that a key over its limit costs Redis next to nothing.
//
// Where a process's part of the bucket is below a unit (a few requests a
// minute over forty processes) there is nothing to lease, and a decision costs
// a round trip; a log line says so once. How all this works, and why the sum
// holds, is in docs/protocol.md; what it comes to, measured on whole fleets,
// in docs/lab/results.md.
//
// # Which mode
//
// ModeAuto is right for most: leases first, credit for new keys and spikes.
// ModeStrict admits nothing that Redis has not debited. ModeDeferred is the
// classic "count locally, push every K units or T". ModeExact asks Redis every
// time. They are one code path with two numbers: what a lease may be, and C.
//
// # Guarantees
//
// With Redis's memory intact, N not underestimated, no Refund, Reset or Charge, and
// while no decision's Source is Fallback or Switch, for any schedule, delay,
// load and T, what the fleet admits of a token or leaky bucket in any interval (s, t] is
//
//	ModeDeferred, ModeAuto:  ≤ Burst + rate·(t-s) + (N-1)·C
//	ModeStrict, ModeExact:   ≤ Burst + rate·(t-s)
//
// where N is the number of processes and C is, for ModeAuto,
// ⌊Overshoot·Burst/max(N-1, 1)⌋, so that the excess is at most
// Overshoot·Burst; for ModeDeferred, min(K, ⌊Burst/max(N-1, 1)⌋). A call that
// waited for Redis counts at the moment at which Redis decided. The excess is
// carried as debt, down to -Burst, so that the long-run rate holds.
//
// A fixed window counts at most Rate + (N-1)·C, and a sliding window's estimate
// is no larger, C being of Rate for Burst. (An estimate is not a trailing count:
// see docs/windows.md.) A queue forwards no faster than its rate, each forward up
// to a round trip late; a log is exact, and asks for each call.
//
// In a partition the processes that reach Redis keep the whole limit, and each
// process that is cut off has its share besides: with FallbackShare and k of N
// processes cut off the fleet admits at most limit·(1 + k/N). These shares are
// repaid when the partition ends.
//
// In a total outage with FallbackShare the fleet admits at most
// N·max(limit/N known, FallbackFloor per time-to-full).
//
// A Redis that lost its state, wiped or back from a snapshot, gives no new
// quota for long: with their next answer, or their next heartbeat, processes
// notice, and tell it the last that they saw of each key that is not full by
// now. The lowest level counts, so the use of crashed and idle processes is
// restored with it. The fleet takes a quarter of Redis's time for this: it is
// done within about a second for a few thousand keys, and 20 000 a second
// beyond; a key in use tells at its next sync. Units that were debited after
// the last view of any living process are forgotten.
//
// When a process crashes, at most C units stay uncounted or its lease is
// wasted. A process frozen for longer than a lease may spend what it held,
// once.
package hybrid
