package local

import (
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
)

// maxShards is enough for a few dozen cores to seldom contend for one lock.
// minShardKeys makes shards large enough that the unevenness of the hash (√n) costs
// little of MaxKeys.
const (
	maxShards    = 64
	minShardKeys = 1024
)

// shardCount returns the number of shards for MaxKeys: a power of two.
func shardCount(maxKeys int) int {
	n := 1
	for n < maxShards && maxKeys/(2*n) >= minShardKeys {
		n *= 2
	}
	return n
}

// sweepKeys is the number of idle keys that one call drops. With more than one, a
// shard empties faster than new keys fill it. It is small, so that no call pays for
// many.
const sweepKeys = 2

// shard is a part of the keys under one lock. Tokens are taken under the lock too.
// The rejected alternative releases the lock after the lookup. Then a key could be
// evicted while a caller takes from its bucket, and those units would be lost. Time
// could run backwards in the bucket (see tick). RetryAfter would be a guess. The
// alternative would save a third if two cores share one key (190 to 135 ns a call,
// BenchmarkAllow), and little over many keys (160 to 150 ns).
type shard struct {
	mu      sync.Mutex
	keys    *simplelru.LRU[string, *entry] // nil: closed
	base    *plan                          // of keys without a limit of their own
	counted *plan                          // the last base that was not static
	room    int                            // the largest number of keys
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

// tick moves the shard's clock to now. It returns the shard's time, and the time by
// which now is behind it.
//
// Callers read the clock before they take the lock, so their times arrive out of
// order, by milliseconds if a caller is preempted in between. If a rate.Limiter gets
// an earlier time than before, it refills the time between the two again. Without
// tick, with 16 goroutines on 2 cores at 10⁶ a second, it admitted 13 000 more than
// its bound in two seconds. tick also keeps the keys of the LRU in the order of
// entry.seen.
func (s *shard) tick(now time.Duration) (at, behind time.Duration) {
	if now < s.now {
		return s.now, s.now - now
	}
	s.now = now
	return now, 0
}

// find returns the entry of key and marks it as used now. For a key without one, it
// makes an unused entry. p is the plan of the call. own is the plan from LimitFor
// for a key without an entry, or nil.
func (s *shard) find(key string, p, own *plan) *entry {
	e, ok := s.keys.Get(key)
	if !ok {
		if s.keys.Len() >= s.room {
			s.evict()
		}
		e = newEntry(p, own)
		// The caller's string may share memory with a request or a buffer.
		s.keys.Add(strings.Clone(key), e)
	}
	e.seen = s.now
	if s.now > s.sweepAt {
		s.sweep(s.base.idle)
	}
	return e
}

// glance returns the entry of key without marking it as used. For a key without
// one, it returns an unused entry that the shard does not hold.
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

// sweep drops keys without a call for longer than idle, the oldest first. Exactly
// idle is not enough: a bucket may lack less than a nanosecond's refill. A key that
// is not full yet moves to the end of the queue, and is checked again when it is the
// oldest. At the front it would keep the keys behind it from being dropped.
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
	// Other keys become idle later than the oldest.
	if _, e, ok := s.keys.GetOldest(); ok {
		s.sweepAt = e.seen + min(idle, hybridlimit.Never-e.seen)
	}
}
