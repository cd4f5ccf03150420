// Package local limits in the memory of one process: one token bucket per
// key, no Redis, no goroutine. It satisfies hybridlimit.Limiter.
//
// Pick it when the limit belongs to the process (protecting its own CPU, its
// own connections), when there is only one process, or in tests of code that
// takes any Limiter. It is not a part of a fleet's limit: N processes with a
// local limit of r admit N·r together. Pick global or hybrid for that.
//
// # Model
//
// A key starts with a full bucket of BurstSize tokens, an admitted call takes
// its cost out, and Rate tokens come back per Period until the bucket is full.
// The bucket is a [rate.Limiter]; a denial takes nothing from it. Admitted
// units of a key in any interval of length t:
//
//	admitted ≤ BurstSize + Rate·(t + 1ns)/Period
//
// The 1 ns is how rate.Limiter rounds: a call that lacks less than what comes
// back in a nanosecond is admitted, and the next one pays for it. Below 10⁹
// units a second that is less than one unit. (Slow limits round more: see
// Resolution.) The bound holds from one loss of a key's state to the next (see
// Memory).
//
// # Memory
//
// At most MaxKeys keys are held, in least-recently-used order. A new key that
// finds its shard full pushes out the shard's oldest key; if that one was not
// full yet, its history is forgotten, it starts anew with a full bucket, and
// [Limiter.Evicted] counts it: each such loss gives that key at most one burst
// too much. A flood of made-up keys therefore costs real ones their history,
// so authenticate before limiting by a name that the caller chose.
//
// A key that nobody asked about for longer than IdleAfter is full again, and
// forgetting it loses nothing. Each call drops up to two such keys from its
// shard. With no calls nothing is freed: there is no goroutine to do it. What
// is freed is the key and its bucket; the table that held them keeps its size,
// as Go maps do.
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
// first, without exception: the bucket itself was asked. It is denied ε
// earlier, with
//
//	ε = 2ns + (a+2)·TimeToFull/2⁴⁹
//
// where a is how many calls were admitted since the key was last full: a bucket
// is a float64, and each admission rounds it. The decisions themselves are
// within ε of those of the ideal bucket. The second term is 2·10⁻⁶ ns for each
// admission at a second to full, 0.2 ns at a day, and 8 µs at 142 years, the
// longest that Validate passes. (It adds up the worst of each operation; random
// search found a sixteenth of it.) ResetAfter is as exact.
package local
