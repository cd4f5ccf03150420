// Package local limits keys in the memory of one process, with any algorithm. It uses no Redis and no goroutine. Its
// Limiter is a hybridlimit.Limiter.
//
// Choose it if the limit belongs to the process, for example to protect its CPU or its connections. Choose it also if
// there is only one process, or in tests of code that takes any Limiter. It cannot share a limit among a fleet: N
// processes with a local limit of r together admit N·r. Choose global or hybrid for a shared limit.
//
// A ConcurrencyLimiter limits the calls that run at once, with permits: NewConcurrency makes one.
//
// # Algorithms
//
// Let n be the units of a key admitted in any interval of length t, and w = ⌊t/Period⌋. Every algorithm needs one
// lookup of the key per call.
//
//	token bucket    n ≤ Burst + Rate·(t + 1ns)/Period
//	leaky bucket    the same: it is a token bucket that counts used units
//	leaky queue     started: n ≤ the cost of the last + Rate·(t + 1ns)/Period; admitted: as the buckets
//	fixed window    n ≤ Rate·(w + 2): two bursts at the border of two windows
//	sliding window  n ≤ Rate·(w + 2), without a burst at a border: it bounds an estimate
//	sliding log     n ≤ Rate·(w + 1), the exact limit
//
// The buckets decide as rate.Limiter of golang.org/x/time does, to the bit; a denial takes nothing. The 1 ns is its
// rounding: it admits a call that lacks less than the refill of one nanosecond, and the next call pays for it. Below
// 10⁹ units a second that is less than one unit. (Slow limits round more: see Resolution.) The queue, the windows and
// the log count in integers and do not round. The answer of a queue is Delay, the time until the start. Wait waits for
// it.
//
// Choose the token bucket by default. Choose a queue to space out calls to a server that cannot take bursts. Choose a
// fixed window if a contract names calendar hours, and a sliding window for the same without borders. Choose a log if
// "in any hour" must hold exactly; it costs 24 bytes for each call in it.
//
// The bounds hold between two losses of a key's state (see Memory). They do not include Charge, Refund, Reset and
// changes of the limit. [Limiter.SetLimit] documents the effect of a change. A change never refills a key that is held.
//
// # Time
//
// The clock is monotonic. Windows are aligned to Unix time as the wall clock showed it when the limiter was made, and
// are counted from there: setting the wall clock later moves no window.
//
// # Debt
//
// [Limiter.Charge], and in buckets [Limiter.Reserve] and [Limiter.Wait], take units that have not refilled yet. The
// level then falls to at most one burst below zero: the key is in debt, and Allow admits nothing before it is paid.
//
// # Memory
//
// A limiter holds at most MaxKeys keys, divided evenly among shards. A new key in a full shard pushes out the key that
// was used least recently (an LRU of golang-lru). Each call for a key is a use of it, also a denied one, but not Peek,
// History, Invalidate or the cancelling of a reservation. With 64 shards, the first one is full when 92 to 96 % of
// MaxKeys are held (30 runs).
//
// If the evicted key was not full yet, it restarts full: it gets at most one burst too much, and loses its debt.
// [Limiter.Evicted] counts this. A flood of invented keys thus costs real keys their history. So authenticate before
// you limit by a name that the caller chose.
//
// A key costs 190 to 260 bytes and its name, and up to 45 bytes more after many keys have come and gone (measured,
// TestMemoryOfAKey); a log costs most. A log also costs 24 bytes for each call that still counts, and as much again
// while it grows. It has at most Rate calls, or twice that in debt, so a key of a million an hour may use 48 MB. A call
// with a request id (hybridlimit.WithRequestID) costs 40 bytes and the id more.
//
// A key without a call for longer than IdleAfter is full again, and dropping it loses nothing. A key in debt, or under
// a slower limit of its own, stays until it is full. Each call drops up to two idle keys of its shard. Without calls
// nothing is freed, since there is no goroutine. The map of the keys keeps its size.
//
// # Resolution
//
// A call that is repeated after its RetryAfter is always admitted, unless another call takes the units first. The
// queue, the windows and the log deny it one nanosecond earlier. A bucket denies it ε earlier, with
//
//	ε = 2ns + (a+2)·TimeToFull/2⁴⁹
//
// where a is the number of calls admitted since the key was last full: a bucket is a float64, and each admission rounds
// it. For each, the second term is 2·10⁻⁶ ns at a second to full, 0.2 ns at a day, and 8 µs at 142 years, the longest
// that Validate permits. (Random search found a sixteenth of it.) ResetAfter is as exact.
package local
