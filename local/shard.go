package local

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
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

// sweepKeys is the number of keys that one call checks for idleness. With more than one,
// a shard empties faster than new keys fill it. It is small, so that no call pays for
// many.
const sweepKeys = 2

// shard is a part of the keys under one lock. Tokens are taken under the lock too, so
// that no key is evicted while a caller takes from it: those units would be lost.
type shard struct {
	mu      sync.Mutex
	closed  bool
	keys    keys
	base    *plan         // of keys without a limit of their own
	counted *plan         // the last base that was not static
	room    int           // the largest number of keys
	now     time.Duration // latest time of any call, since the limiter's start
	sweepAt time.Duration // the next round of the broom begins after this
	lost    uint64        // keys evicted before they were full again

	_ [64]byte // keeps neighbours' locks off this cache line
}

func (s *shard) open(room int, base *plan) {
	s.room, s.base, s.sweepAt = room, base, base.idle
	if !static(base.limit.Algorithm) {
		s.counted = base
	}
}

// tick moves the shard's clock to now. It returns the shard's time, and the time by
// which now is behind it.
//
// Callers read the clock before they take the lock, so their times arrive out of
// order, by milliseconds if a caller is preempted in between. A state must not go back
// in time: it would refill the time between the two again.
func (s *shard) tick(now time.Duration) (at, behind time.Duration) {
	if now < s.now {
		return s.now, s.now - now
	}
	s.now = now
	return now, 0
}

// place is a key in its shard, which is locked.
type place struct {
	*shard
	hash  uint64
	key   string
	entry *entry // nil: the key is not held
	own   *plan  // from LimitFor, for a key that is not held
	asked refresh.Mark
}

// find returns the entry of the key and marks it as used now. For a key without one, it
// makes an unused entry. p is the plan of the call.
func (at *place) find(seed maphash.Seed, p *plan) *entry {
	s, e := at.shard, at.entry
	if e != nil {
		e.used = true
	} else {
		e = s.enter(seed, at, p)
	}
	e.seen = s.now
	if s.now > s.sweepAt {
		s.sweep(seed)
	}
	return e
}

// enter makes the entry of a key, and evicts another one if the shard is full.
func (s *shard) enter(seed maphash.Seed, at *place, p *plan) *entry {
	e := newEntry(p, at.own)
	e.asked = at.asked
	e.name(at.key)
	at.entry = e
	if len(s.keys.ring) < s.room {
		s.keys.add(at.hash, e, s.room)
		return e
	}
	old := s.keys.victim()
	if !old.fresh(s.now) {
		s.lost++
	}
	s.keys.replace(old.hash(seed), old, at.hash, e, s.room)
	return e
}

// glance returns the entry of the key without marking it as used. For a key without
// one, it returns an unused entry that the shard does not hold.
func (at *place) glance(p *plan) *entry {
	if at.entry != nil {
		return at.entry
	}
	return newEntry(p, at.own)
}

// sweep drops keys without a call for longer than idle. Exactly idle is not enough: a
// bucket may lack less than a nanosecond's refill. Each call moves the broom by two
// entries, from the end of the ring to its begin. The next round begins idle later. A
// key that is not full yet is checked again as if it had been used now.
func (s *shard) sweep(seed maphash.Seed) {
	idle, k := s.base.idle, &s.keys
	if k.broom = min(k.broom, len(k.ring)); k.broom == 0 {
		k.broom = len(k.ring)
	}
	for range min(sweepKeys, k.broom) {
		k.broom--
		switch e := k.ring[k.broom]; {
		case e.seen > s.now-idle-1:
		case e.fresh(s.now):
			k.remove(e.hash(seed), e) // the last entry takes its place: it was checked before
		default:
			e.seen = s.now
		}
	}
	if k.broom == 0 {
		s.sweepAt = s.now + min(idle, hybridlimit.Never-s.now)
	}
}
