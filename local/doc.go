// Package local limits in the memory of one process: any algorithm, per key, no
// Redis, no goroutine. It satisfies hybridlimit.Limiter.
//
// Pick it when the limit belongs to the process (protecting its own CPU, its
// own connections), when there is only one process, or in tests of code that
// takes any Limiter. It is not a part of a fleet's limit: N processes with a
// local limit of r admit N·r together. Pick global or hybrid for that.
//
// # Algorithms
//
// With n the units of a key that are admitted in any interval of length t, w =
// ⌊t/Period⌋, and one lookup of a key in all cases:
//
//	token bucket    n ≤ Burst + Rate·(t + 1ns)/Period
//	leaky bucket    the same: a token bucket seen from above
//	leaky queue     starts: n ≤ the cost of the last + Rate·(t + 1ns)/Period; admitted: as the buckets
//	fixed window    n ≤ Rate·(w + 2): two bursts at the border of two windows
//	sliding window  n ≤ Rate·(w + 2), but no burst at a border: what it bounds is an estimate
//	sliding log     n ≤ Rate·(w + 1), exactly what it says
//
// The buckets are a [rate.Limiter]; a denial takes nothing from it. The 1 ns is
// how it rounds: a call that lacks less than what comes back in a nanosecond is
// admitted, and the next one pays for it. Below 10⁹ units a second that is less
// than one unit. (Slow limits round more: see Resolution.) The queue, the
// windows and the log count in integers and round nothing. A queue's answer is
// Delay: when to start; Wait waits for it.
//
// Pick the token bucket unless there is a reason: a queue to space out what
// goes to something that cannot take bursts; a fixed window where a contract
// speaks of calendar hours; a sliding window for the same without its borders;
// a log where "in any hour" must be true, at 24 bytes for each call in it.
//
// The bounds hold from one loss of a key's state to the next (see Memory), and
// without Charge, Refund, Reset, and changes of the limit. What a changed limit
// does is said at [Limiter.SetLimit]; it never refills a key that is held.
//
// # Time
//
// The clock is the monotonic one. Windows are aligned to Unix time as the wall
// clock showed it when the limiter was made, and counted on from there: setting
// the wall clock later moves no window, and a limiter that runs for long drifts
// from it as the monotonic clock does. All of a fixed window's answers name the
// same end of it in ResetAfter, to the nanosecond.
//
// # Debt
//
// [Limiter.Charge] and, in buckets, [Limiter.Reserve] and [Limiter.Wait] take
// what is not there yet, down to one burst below nothing. Nothing is admitted
// by Allow before a debt is paid.
//
// # Memory
//
// At most MaxKeys keys are held, in least-recently-used order. A new key that
// finds its shard full pushes out the shard's oldest key; if that one was not
// full yet, its history is forgotten, it starts anew with a full bucket, and
// [Limiter.Evicted] counts it: each such loss gives that key at most one burst
// too much, and forgives it its debt. A flood of made-up keys therefore costs
// real ones their history, so authenticate before limiting by a name that the
// caller chose.
//
// A key costs 180 to 260 bytes and its name (measured, BenchmarkMemory), the
// log most. It costs 24 bytes more for each call that still counts, whatever
// that cost, and as much again while it grows: at most Rate calls, or twice that
// in debt, so that a key of a million an hour may come to 48 MB. A call of a
// request with an id (hybridlimit.WithRequestID) has 40 bytes and the id more.
//
// A key that nobody asked about for longer than IdleAfter is full again, and
// forgetting it loses nothing; one in debt, or under a slower limit of its own,
// stays until it is. Each call drops up to two such keys from its shard. With no
// calls nothing is freed: there is no goroutine to do it. What is freed is the
// key and its state; the table that held them keeps its size, as Go maps do.
//
// # Shards
//
// Keys are hashed, with a seed of this limiter, over 1 shard for MaxKeys below
// 2048 and else over a power of two up to 64 of at least 1024 keys each.
// MaxKeys is dealt out evenly, so the total is never above it. The hash is not
// perfectly even: with many shards the first one is full, and starts to evict,
// when 92 to 96 % of MaxKeys are held (30 runs).
//
// # Resolution
//
// A call that is repeated after its RetryAfter is admitted if nobody comes
// first, without exception. The queue, the windows and the log deny it a
// nanosecond earlier; a bucket was asked itself, and denies it ε earlier, with
//
//	ε = 2ns + (a+2)·TimeToFull/2⁴⁹
//
// where a is how many calls were admitted since the key was last full: a bucket
// is a float64, and each admission rounds it. The decisions themselves are
// within ε of those of the ideal bucket. The second term is 2·10⁻⁶ ns for each
// admission at a second to full, 0.2 ns at a day, and 8 µs at 142 years, the
// longest that Validate passes. (It adds up the worst of each operation; random
// search found a sixteenth of it.) ResetAfter is as exact. What Cancel and
// Refund give back of a part of a unit is cut to whole nanoseconds of refill.
package local
