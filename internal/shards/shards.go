// Package shards decides into how many parts the keys of a limiter are split, each under a lock of its own.
package shards

// Most is the largest number of shards.
const Most = 256

const (
	// perCore is enough for cores to seldom contend for one lock. More shards slow evictions down: the oldest keys of
	// all shards lie far apart in memory.
	perCore = 4
	// perShard is the least number of keys of a shard: a small bound split over many shards would evict unevenly.
	perShard = 1024
)

// Count returns the number of shards for a bound of maxKeys: a power of two.
func Count(maxKeys, cores int) int {
	n := 1
	for n < min(Most, perCore*cores) && maxKeys/(2*n) >= perShard {
		n *= 2
	}
	return n
}
