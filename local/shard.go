package local

import (
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
)

// Shards are many enough that a few dozen cores seldom meet on one lock, and
// hold enough keys that the hash's unevenness (√n) costs little of MaxKeys.
const (
	maxShards    = 64
	minShardKeys = 1024
)

// shardCount is the number of shards for a bound: a power of two.
func shardCount(maxKeys int) int {
	n := 1
	for n < maxShards && maxKeys/(2*n) >= minShardKeys {
		n *= 2
	}
	return n
}

// sweepKeys is how many idle keys one call drops: more than one, so that a
// shard drains faster than new keys fill it; few, so that no call pays for the
// others.
const sweepKeys = 2

// shard is a part of the keys under one lock. Tokens are taken under it too.
// With the lock released after the lookup, a key could be evicted while a
// caller still takes from its bucket, and what he takes would be forgotten; and
// time could run backwards in the bucket (see tick), and RetryAfter would be a
// guess. That would save two cores that share one key a third (190 to 135 ns a
// call, BenchmarkAllow), and over many keys next to nothing (160 to 150 ns).
type shard struct {
	mu      sync.Mutex
	keys    *simplelru.LRU[string, *entry] // nil: closed
	base    *plan                          // of keys without a limit of their own
	counted *plan                          // base, or what it was when it last counted anything
	room    int                            // how many keys may stand in keys
	now     time.Duration                  // latest time of any call, since the limiter's start
	sweepAt time.Duration                  // no key is idle before this
	lost    uint64                         // keys evicted before they were full again

	_ [64]byte // keeps neighbours' locks off this cache line
}

func (s *shard) open(room int, base *plan) error {
	s.room, s.base = room, base
	if !static(base.limit.Algorithm) {
		s.counted = base
	}
	var err error
	s.keys, err = simplelru.NewLRU[string, *entry](room, nil)
	return err
}

// tick moves the shard's clock to now, and says what it shows and by how much
// now is behind it.
//
// Callers read the clock before they take the lock, so they come out of order,
// by milliseconds when one is preempted in between. A rate.Limiter that is
// given an earlier time than its last pays the refill between the two a second
// time: bare, with 16 goroutines on 2 cores at 10⁶ a second, it was seen to
// admit 13 000 more than its bound in two seconds. It also keeps the keys of
// the LRU in the order of entry.seen.
func (s *shard) tick(now time.Duration) (at, behind time.Duration) {
	if now < s.now {
		return s.now, s.now - now
	}
	s.now = now
	return now, 0
}

// find returns the entry of key, one that was never used if it has none, as
// just used. p is the limit of the call, and own what LimitFor said if the key
// has no entry, which may be nil.
func (s *shard) find(key string, p, own *plan) *entry {
	e, ok := s.keys.Get(key)
	if !ok {
		if s.keys.Len() >= s.room {
			s.evict()
		}
		e = newEntry(p, own)
		// The caller's string may be a piece of a request or a buffer that is
		// about to be reused.
		s.keys.Add(strings.Clone(key), e)
	}
	e.seen = s.now
	if s.now > s.sweepAt {
		s.sweep(s.base.idle)
	}
	return e
}

// glance returns the entry of key without any trace, and one that nobody holds
// if it has none.
func (s *shard) glance(key string, p, own *plan) *entry {
	if e, ok := s.keys.Peek(key); ok {
		return e
	}
	return newEntry(p, own)
}

// evict drops the least recently used key.
func (s *shard) evict() {
	if _, e, ok := s.keys.RemoveOldest(); ok && !e.fresh(s.now) {
		s.lost++
	}
}

// sweep drops keys that were idle for longer than idle, the oldest first. Not
// for as long: a bucket may owe less than a nanosecond's refill. One that has
// something to remember all the same goes to the end of the queue, and is
// looked at again when it comes round: at the front it would keep those behind
// it from being dropped.
func (s *shard) sweep(idle time.Duration) {
	for range sweepKeys {
		key, e, ok := s.keys.GetOldest()
		if !ok {
			return
		}
		if e.seen > s.now-idle-1 {
			break
		}
		if e.fresh(s.now) {
			s.keys.Remove(key)
			continue
		}
		s.keys.Get(key)
		e.seen = s.now
	}
	// Keys that are used later become idle later, so until then there is
	// nothing to look for.
	if _, e, ok := s.keys.GetOldest(); ok {
		s.sweepAt = e.seen + min(idle, hybridlimit.Never-e.seen)
	}
}
